#include "runtime/engine/snapshot.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace weir {
namespace {

// Keys are stored [head_dim, tokens], values [tokens, head_dim], per layer and head.
void ZeroUnusedTokens(char* block, int64_t used, const KvPool& kv) {
  const TensorView& keys = kv.layers()[0].keys;
  const int64_t num_heads = keys.dim(1), head_dim = keys.dim(2);
  const auto element = static_cast<int64_t>(DTypeBytes(keys.dtype()));
  const int64_t unused = kKvBlockTokens - used;
  char* at = block;
  for (size_t layer = 0; layer < kv.layers().size(); ++layer) {
    for (int64_t row = 0; row < num_heads * head_dim; ++row, at += kKvBlockTokens * element)
      std::memset(at + used * element, 0, static_cast<size_t>(unused * element));
    for (int64_t head = 0; head < num_heads; ++head, at += kKvBlockTokens * head_dim * element)
      std::memset(at + used * head_dim * element, 0, static_cast<size_t>(unused * head_dim * element));
  }
}

}  // namespace

// --- body ---

BodyReader::BodyReader(const Sequence& sequence, StateArena& arena, KvPool& kv)
    : sequence_(sequence), arena_(arena), kv_(kv), total_(arena.slot_bytes()), last_block_begin_(total_) {
  const int64_t num_blocks = kv.num_blocks() > 0 ? KvPool::BlocksFor(sequence.fed) : 0;
  total_ += num_blocks * kv.block_bytes();
  last_block_begin_ = total_;
  const int64_t used = sequence.fed % kKvBlockTokens;
  if (num_blocks == 0 || used == 0) return;
  last_block_begin_ -= kv.block_bytes();
  last_block_.resize(static_cast<size_t>(kv.block_bytes()));
  kv.Read(sequence.blocks, (num_blocks - 1) * kv.block_bytes(), kv.block_bytes(), last_block_.data());
  ZeroUnusedTokens(last_block_.data(), used, kv);
}

void BodyReader::Read(char* out, int64_t bytes) {
  WEIR_CHECK(bytes <= remaining());
  while (bytes > 0) {
    int64_t end = total_;
    if (offset_ < arena_.slot_bytes())
      end = arena_.slot_bytes();
    else if (offset_ < last_block_begin_)
      end = last_block_begin_;
    const int64_t count = std::min(bytes, end - offset_);
    if (offset_ < arena_.slot_bytes())
      arena_.Read(sequence_.slot, offset_, count, out);
    else if (offset_ < last_block_begin_)
      kv_.Read(sequence_.blocks, offset_ - arena_.slot_bytes(), count, out);
    else
      std::memcpy(out, last_block_.data() + (offset_ - last_block_begin_), static_cast<size_t>(count));
    offset_ += count;
    out += count;
    bytes -= count;
  }
}

void BodyWriter::Write(const char* in, int64_t bytes) {
  WEIR_CHECK(bytes <= remaining());
  const int64_t into_slot = std::clamp<int64_t>(arena_.slot_bytes() - offset_, 0, bytes);
  if (into_slot > 0) arena_.Write(sequence_.slot, offset_, into_slot, in);
  if (into_slot < bytes)
    kv_.Write(sequence_.blocks, offset_ + into_slot - arena_.slot_bytes(), bytes - into_slot, in + into_slot);
  offset_ += bytes;
}

// --- file ---

SnapshotFileReader::SnapshotFileReader(const SnapshotShape& shape, const Sequence& sequence,
                                       StateArena& arena, KvPool& kv)
    : ends_(EncodeSnapshotHeader(shape, MakeSnapshotHeader(shape, sequence))),
      header_bytes_(static_cast<int64_t>(ends_.size())),
      body_(sequence, arena, kv) {
  sum_.Add(ends_);
  ends_.append(kSnapshotTrailerBytes, '\0');  // filled in when the body is through
}

std::string SnapshotFileReader::Read(int64_t max_bytes) {
  std::string out(static_cast<size_t>(std::min(max_bytes, remaining())), '\0');
  size_t filled = 0;
  const auto take_ends = [&](int64_t until) {
    const auto count = std::min(out.size() - filled, static_cast<size_t>(until - ends_at_));
    std::memcpy(out.data() + filled, ends_.data() + ends_at_, count);
    ends_at_ += static_cast<int64_t>(count);
    filled += count;
  };
  if (ends_at_ < header_bytes_) take_ends(header_bytes_);
  const auto from_body = std::min(static_cast<int64_t>(out.size() - filled), body_.remaining());
  if (from_body > 0) {
    body_.Read(out.data() + filled, from_body);
    sum_.Add(std::string_view(out).substr(filled, static_cast<size_t>(from_body)));
    filled += static_cast<size_t>(from_body);
  }
  if (filled < out.size()) {
    const uint64_t checksum = sum_.Get();
    std::memcpy(ends_.data() + header_bytes_, &checksum, sizeof(checksum));
    take_ends(static_cast<int64_t>(ends_.size()));
  }
  return out;
}

void RestoreSequence(const SnapshotHeader& header, Sequence* sequence) {
  sequence->fed = header.fed;
  sequence->pending.assign(header.pending, header.pending + header.num_pending);
  sequence->pending_begin = 0;
  sequence->history = header.history;
  sequence->text = header.text;
  sequence->has_text = header.has_text != 0;
  sequence->corrupt = false;
}

}  // namespace weir
