// The bytes of a session outside its slot: one format for export files, and for snapshots in memory.
// runtime/engine/README.md describes every field.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/sequence.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

inline constexpr uint32_t kSnapshotVersion = 2;
// Magic, version and length of the header: the same in every version.
inline constexpr int64_t kSnapshotPrefixBytes = 16;
inline constexpr int64_t kMaxSnapshotHeaderBytes = int64_t{1} << 20;
inline constexpr int64_t kSnapshotTrailerBytes = 8;

// The fixed part of the header, as it lies in the file: little-endian, no padding.
struct SnapshotHeader {
  char magic[8];  // "WEIRSNAP"
  uint32_t version;
  uint32_t header_bytes;  // from the magic to the header's checksum, which is included
  int64_t body_bytes;
  uint64_t weights_fingerprint;
  uint64_t tokenizer_fingerprint;
  char mixer[32];       // padded with zeros
  int64_t fed;          // tokens that the state has taken in
  int32_t vocab_size;   // ids of the tokenizer
  uint32_t num_states;  // rows of the state table
  int64_t slot_bytes;
  int64_t num_kv_blocks;
  uint32_t kv_layers;  // 0: no paged state, and so are the next four
  uint32_t kv_heads;
  uint32_t kv_head_dim;
  uint32_t kv_block_tokens;
  uint32_t kv_dtype;  // 1 f32, 2 f16, 3 bf16
  uint32_t num_pending;
  int32_t pending[kChunkTokens];  // [num_pending] ids to be fed next, then zeros
  TokenHistory history;
  TextState text;
  uint8_t has_text;
  uint8_t reserved[3];

  int64_t position() const { return fed + num_pending; }
};

// After the fixed part: one row for each tensor of the fixed state, in the order of the slot.
struct SnapshotStateRow {
  char name[40];   // padded with zeros
  uint32_t dtype;  // as kv_dtype
  uint32_t rank;
  int64_t shape[3];  // padded with zeros
};

// What a model's sequences are as bytes. Immutable.
struct SnapshotShape {
  std::string model;  // name, for messages
  std::string mixer;
  uint64_t weights_fingerprint = 0;
  uint64_t tokenizer_fingerprint = 0;
  int32_t vocab_size = 0;
  int64_t context_limit = 0;
  std::vector<SnapshotStateRow> states;
  int64_t slot_bytes = 0;
  PagedSpec paged;
  int64_t block_bytes = 0;
  int64_t kv_blocks = 0;  // of the pool

  static SnapshotShape Of(const EngineModel& model);

  int64_t header_bytes() const;
  int64_t NumBlocks(int64_t fed) const;
  int64_t BodyBytes(int64_t fed) const { return slot_bytes + NumBlocks(fed) * block_bytes; }
  // Header, body and trailer: what a session costs to move.
  int64_t FileBytes(int64_t fed) const { return header_bytes() + BodyBytes(fed) + kSnapshotTrailerBytes; }
};

// FNV-1a over 64-bit words with a mix after each: any change of one word changes the sum. Against damage, not
// against an adversary.
class SnapshotChecksum {
 public:
  void Add(std::string_view bytes);
  uint64_t Get() const;

 private:
  void AddWord(uint64_t word);

  uint64_t hash_ = 0xcbf29ce484222325u;
  uint64_t size_ = 0;
  char partial_[8] = {};
};

// A header whose own checksum is right.
struct ParsedHeader {
  SnapshotHeader fixed;
  std::vector<SnapshotStateRow> states;
};

SnapshotHeader MakeSnapshotHeader(const SnapshotShape& shape, const Sequence& sequence);
// With state table and checksum: shape.header_bytes() bytes.
std::string EncodeSnapshotHeader(const SnapshotShape& shape, const SnapshotHeader& header);

// Below: DATA_LOSS (STATE_CORRUPT) for damage, FAILED_PRECONDITION (SNAPSHOT_MISMATCH) for bytes that are
// sound but not of this version or model.

// Length of the header that begins with these kSnapshotPrefixBytes bytes.
absl::StatusOr<int64_t> ReadHeaderLength(std::string_view prefix);
// `bytes` is the whole header. Says nothing yet of whose it is.
absl::StatusOr<ParsedHeader> ReadSnapshotHeader(std::string_view bytes);
// Whether this model made it, and whether every field is one that it can have made.
absl::Status CheckSnapshotHeader(const ParsedHeader& header, const SnapshotShape& shape);
// Whether all floats of body[from, to) are finite. `body` is that of a checked header.
bool BodyIsFinite(const SnapshotShape& shape, const char* body, int64_t from, int64_t to);

absl::Status SnapshotCorrupt(std::string_view what);

}  // namespace weir
