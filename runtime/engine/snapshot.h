// Snapshot: a sequence as bytes that another process with the same model can go on from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/engine/sequence.h"

namespace weir {

// Little-endian: header, pending ids, slot blob, KV blocks that hold fed tokens, and a checksum over all
// before it.
struct SnapshotHeader {
  char magic[8];  // "WEIRSNAP"
  uint32_t version;
  uint32_t num_pending;
  uint64_t fingerprint;  // of weights and tokenizer
  int64_t slot_bytes;
  int64_t kv_block_bytes;
  int64_t num_kv_blocks;
  int64_t fed;
  uint8_t has_text;
  uint8_t reserved[7];
  TokenHistory history;
  TextState text;
  uint8_t reserved_tail[4];
};

inline constexpr uint32_t kSnapshotVersion = 1;

// A snapshot whose every field was checked; points into the caller's bytes.
struct SnapshotView {
  SnapshotHeader header;
  std::string_view pending;  // i32 [num_pending]
  std::string_view slot;
  std::string_view blocks;
};

std::string SaveSnapshot(const Sequence& sequence, uint64_t fingerprint, StateArena& arena, KvPool& kv);

// FAILED_PRECONDITION for another model or version, DATA_LOSS (STATE_CORRUPT) for damaged or non-finite
// bytes.
absl::StatusOr<SnapshotView> ParseSnapshot(std::string_view bytes, uint64_t fingerprint, int32_t vocab_size,
                                           const StateArena& arena, const KvPool& kv);

// `sequence` is new: a slot and nothing else. RESOURCE_EXHAUSTED when its blocks do not fit.
absl::Status LoadSnapshot(const SnapshotView& view, Sequence* sequence, StateArena& arena, KvPool& kv);

}  // namespace weir
