#include "runtime/engine/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

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

BodyReader::BodyReader(const Sequence& sequence, StateIo& io)
    : sequence_(sequence), io_(io), total_(io.arena().slot_bytes()) {
  const KvPool& kv = io.kv();
  const int64_t num_blocks = kv.num_blocks() > 0 ? KvPool::BlocksFor(sequence.fed) : 0;
  total_ += num_blocks * kv.block_bytes();
  const bool last_is_full = num_blocks == 0 || sequence.fed % kKvBlockTokens == 0;
  last_block_begin_ = last_is_full ? total_ : total_ - kv.block_bytes();
}

absl::Status BodyReader::ReadLastBlock() {
  std::vector<char> block(static_cast<size_t>(io_.kv().block_bytes()));
  WEIR_RETURN_IF_ERROR(
      io_.Read(sequence_, last_block_begin_, static_cast<int64_t>(block.size()), block.data()));
  ZeroUnusedTokens(block.data(), sequence_.fed % kKvBlockTokens, io_.kv());
  last_block_ = std::move(block);
  return absl::OkStatus();
}

absl::Status BodyReader::Read(char* out, int64_t bytes) {
  WEIR_CHECK(bytes <= remaining());
  const int64_t whole = std::clamp<int64_t>(last_block_begin_ - offset_, 0, bytes);
  WEIR_RETURN_IF_ERROR(io_.Read(sequence_, offset_, whole, out));
  if (whole < bytes) {
    if (last_block_.empty()) WEIR_RETURN_IF_ERROR(ReadLastBlock());
    std::memcpy(out + whole, last_block_.data() + (offset_ + whole - last_block_begin_),
                static_cast<size_t>(bytes - whole));
  }
  offset_ += bytes;
  return absl::OkStatus();
}

absl::Status BodyWriter::Write(const char* in, int64_t bytes) {
  WEIR_CHECK(bytes <= remaining());
  WEIR_RETURN_IF_ERROR(io_.Write(sequence_, offset_, bytes, in));
  offset_ += bytes;
  return absl::OkStatus();
}

// --- file ---

SnapshotFileReader::SnapshotFileReader(const SnapshotShape& shape, const Sequence& sequence, StateIo& io)
    : ends_(EncodeSnapshotHeader(shape, MakeSnapshotHeader(shape, sequence))),
      header_bytes_(static_cast<int64_t>(ends_.size())),
      body_(sequence, io) {
  sum_.Add(ends_);
  ends_.append(kSnapshotTrailerBytes, '\0');  // filled in when the body is through
}

absl::StatusOr<std::string> SnapshotFileReader::Read(int64_t max_bytes) {
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
    WEIR_RETURN_IF_ERROR(body_.Read(out.data() + filled, from_body));
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
