#include "runtime/engine/snapshot.h"

#include <cmath>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'I', 'R', 'S', 'N', 'A', 'P'};

static_assert(std::is_trivially_copyable_v<SnapshotHeader>);
static_assert(sizeof(SnapshotHeader) == 64 + sizeof(TokenHistory) + sizeof(TextState) + 4);

// FNV-1a over 64-bit words with a final mix: against damage, not against an adversary.
uint64_t Checksum(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u ^ bytes.size();
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  for (; at < bytes.size(); ++at) hash = (hash ^ static_cast<uint8_t>(bytes[at])) * 0x100000001b3u;
  hash ^= hash >> 32;
  return hash * 0x9e3779b97f4a7c15u;
}

absl::Status Corrupt(std::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss, "STATE_CORRUPT",
                   fmt::format("snapshot is damaged: {}; take it again", what));
}

absl::Status Mismatch(std::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "SNAPSHOT_MISMATCH",
                   fmt::format("snapshot does not fit this model: {}", what));
}

bool AllFinite(std::string_view floats) {
  for (size_t at = 0; at + 4 <= floats.size(); at += 4) {
    uint32_t bits;
    std::memcpy(&bits, floats.data() + at, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u) return false;
  }
  return true;
}

// `exponent_mask`: of one 16-bit element.
bool AllFinite16(std::string_view values, uint16_t exponent_mask) {
  for (size_t at = 0; at + 2 <= values.size(); at += 2) {
    uint16_t bits;
    std::memcpy(&bits, values.data() + at, 2);
    if ((bits & exponent_mask) == exponent_mask) return false;
  }
  return true;
}

bool BlocksFinite(std::string_view blocks, const KvPool& kv) {
  if (kv.layers().empty()) return true;
  switch (kv.layers()[0].keys.dtype()) {
    case DType::kF32:
      return AllFinite(blocks);
    case DType::kF16:
      return AllFinite16(blocks, 0x7c00);
    default:
      return AllFinite16(blocks, 0x7f80);
  }
}

// What lies past the last token of the last block may be anything; as zeros, equal sequences give equal
// snapshots. Keys are stored [head_dim, tokens], values [tokens, head_dim], per layer and head.
void ZeroUnusedTokens(char* blocks, int64_t num_blocks, int64_t fed, const KvPool& kv) {
  const int64_t used = fed % kKvBlockTokens;
  if (num_blocks == 0 || used == 0) return;
  const TensorView& keys = kv.layers()[0].keys;
  const int64_t num_heads = keys.dim(1), head_dim = keys.dim(2);
  const auto element = static_cast<int64_t>(DTypeBytes(keys.dtype()));
  const int64_t unused = kKvBlockTokens - used;
  char* at = blocks + (num_blocks - 1) * kv.block_bytes();
  for (size_t layer = 0; layer < kv.layers().size(); ++layer) {
    for (int64_t row = 0; row < num_heads * head_dim; ++row, at += kKvBlockTokens * element)
      std::memset(at + used * element, 0, static_cast<size_t>(unused * element));
    for (int64_t head = 0; head < num_heads; ++head, at += kKvBlockTokens * head_dim * element)
      std::memset(at + used * head_dim * element, 0, static_cast<size_t>(unused * head_dim * element));
  }
}

}  // namespace

std::string SaveSnapshot(const Sequence& sequence, uint64_t fingerprint, StateArena& arena, KvPool& kv) {
  SnapshotHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kSnapshotVersion;
  header.num_pending = static_cast<uint32_t>(sequence.num_pending());
  header.fingerprint = fingerprint;
  header.slot_bytes = arena.slot_bytes();
  header.kv_block_bytes = kv.block_bytes();
  header.num_kv_blocks = kv.num_blocks() > 0 ? KvPool::BlocksFor(sequence.fed) : 0;
  header.fed = sequence.fed;
  header.has_text = sequence.has_text ? 1 : 0;
  header.history = sequence.history;
  header.text = sequence.text;

  const size_t pending_bytes = header.num_pending * sizeof(int32_t);
  const auto slot_bytes = static_cast<size_t>(header.slot_bytes);
  const auto block_bytes = static_cast<size_t>(header.num_kv_blocks * header.kv_block_bytes);
  std::string bytes(sizeof(header) + pending_bytes + slot_bytes + block_bytes + sizeof(uint64_t), '\0');
  char* at = bytes.data();
  std::memcpy(at, &header, sizeof(header));
  at += sizeof(header);
  if (pending_bytes > 0) std::memcpy(at, sequence.waiting().data(), pending_bytes);
  at += pending_bytes;
  arena.Read(sequence.slot, at);
  at += slot_bytes;
  kv.Read(sequence.blocks, header.num_kv_blocks, reinterpret_cast<std::byte*>(at));
  ZeroUnusedTokens(at, header.num_kv_blocks, header.fed, kv);
  at += block_bytes;
  const uint64_t checksum = Checksum(std::string_view(bytes.data(), static_cast<size_t>(at - bytes.data())));
  std::memcpy(at, &checksum, sizeof(checksum));
  return bytes;
}

absl::StatusOr<SnapshotView> ParseSnapshot(std::string_view bytes, uint64_t fingerprint, int32_t vocab_size,
                                           const StateArena& arena, const KvPool& kv) {
  SnapshotView view;
  SnapshotHeader& header = view.header;
  if (bytes.size() < sizeof(header) + sizeof(uint64_t))
    return Corrupt(fmt::format("only {} bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return Corrupt("it does not start with WEIRSNAP");
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof(checksum), sizeof(checksum));
  if (checksum != Checksum(bytes.substr(0, bytes.size() - sizeof(checksum))))
    return Corrupt("its checksum is wrong");
  if (header.version != kSnapshotVersion)
    return Mismatch(fmt::format("format version {}, this server reads {}", header.version, kSnapshotVersion));
  if (header.fingerprint != fingerprint) return Mismatch("other weights or another tokenizer");
  if (header.slot_bytes != arena.slot_bytes() || header.kv_block_bytes != kv.block_bytes())
    return Mismatch(fmt::format("state of {} bytes and KV blocks of {} bytes, this model has {} and {}",
                                header.slot_bytes, header.kv_block_bytes, arena.slot_bytes(),
                                kv.block_bytes()));

  if (header.fed < 0 || header.fed > (int64_t{1} << 60)) return Corrupt("its position is out of range");
  if (header.num_kv_blocks != (kv.num_blocks() > 0 ? KvPool::BlocksFor(header.fed) : 0))
    return Corrupt("its KV blocks do not match its position");
  if (header.num_pending > kChunkTokens) return Corrupt("its pending tokens are out of range");
  if (header.has_text > 1 || !header.history.IsValid(vocab_size) || !header.text.IsValid())
    return Corrupt("its token history or text is not valid");
  const size_t pending_bytes = header.num_pending * sizeof(int32_t);
  const auto slot_bytes = static_cast<size_t>(header.slot_bytes);
  if (header.num_kv_blocks > static_cast<int64_t>(bytes.size())) return Corrupt("it is cut short");
  const auto block_bytes = static_cast<size_t>(header.num_kv_blocks * header.kv_block_bytes);
  if (bytes.size() != sizeof(header) + pending_bytes + slot_bytes + block_bytes + sizeof(checksum))
    return Corrupt(fmt::format("{} bytes where {} belong", bytes.size(),
                               sizeof(header) + pending_bytes + slot_bytes + block_bytes + sizeof(checksum)));
  view.pending = bytes.substr(sizeof(header), pending_bytes);
  view.slot = bytes.substr(sizeof(header) + pending_bytes, slot_bytes);
  view.blocks = bytes.substr(sizeof(header) + pending_bytes + slot_bytes, block_bytes);
  for (uint32_t i = 0; i < header.num_pending; ++i) {
    int32_t id;
    std::memcpy(&id, view.pending.data() + i * sizeof(id), sizeof(id));
    if (id < 0 || id >= vocab_size) return Corrupt("a pending token is not in the vocabulary");
  }
  if (!AllFinite(view.slot) || !BlocksFinite(view.blocks, kv)) return Corrupt("its state is not finite");
  return view;
}

absl::Status LoadSnapshot(const SnapshotView& view, Sequence* sequence, StateArena& arena, KvPool& kv) {
  const SnapshotHeader& header = view.header;
  if (header.num_kv_blocks > 0 && !sequence->blocks.Reserve(&kv, header.num_kv_blocks * kKvBlockTokens))
    return MakeError(
        absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
        fmt::format("the snapshot needs {} KV blocks, {} are free", header.num_kv_blocks, kv.num_free()), {},
        absl::Seconds(1));
  arena.Write(sequence->slot, view.slot.data());
  kv.Write(sequence->blocks, header.num_kv_blocks, reinterpret_cast<const std::byte*>(view.blocks.data()));
  sequence->fed = header.fed;
  sequence->pending.resize(header.num_pending);
  if (header.num_pending > 0) std::memcpy(sequence->pending.data(), view.pending.data(), view.pending.size());
  sequence->history = header.history;
  sequence->text = header.text;
  sequence->has_text = header.has_text != 0;
  return absl::OkStatus();
}

}  // namespace weir
