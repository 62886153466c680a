#include "runtime/engine/step_batch.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace weir {

absl::StatusOr<StepBatch> StepBatch::Create(int max_tokens, int max_seqs, int max_logits,
                                            int64_t max_blocks_per_seq, Device& device) {
  StepBatch batch;
  batch.max_blocks_ = max_blocks_per_seq;
  int64_t bytes = 0;
  const auto take = [&bytes](int64_t size) {
    const int64_t offset = bytes;
    bytes += (size + 63) / 64 * 64;
    return offset;
  };
  batch.positions_ = take(8 * max_seqs);
  batch.token_ids_ = take(4 * max_tokens);
  batch.cu_seqlens_ = take(4 * (max_seqs + 1));
  batch.slots_ = take(4 * max_seqs);
  batch.logit_rows_ = take(4 * max_logits);
  batch.block_tables_ = take(4 * max_seqs * max_blocks_per_seq);
  WEIR_ASSIGN_OR_RETURN(batch.host_, device.AllocateHost(bytes));
  WEIR_ASSIGN_OR_RETURN(batch.buffer_, device.Allocate(bytes));
  batch.Clear();
  return batch;
}

void StepBatch::Clear() {
  num_tokens_ = num_seqs_ = num_logits_ = max_seq_tokens_ = 0;
  max_positions_ = 0;
  HostArray<int32_t>(cu_seqlens_)[0] = 0;
}

void StepBatch::AddRun(int slot, int64_t position, std::span<const int32_t> tokens,
                       std::span<const int32_t> blocks, int num_logits) {
  const int n = static_cast<int>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), HostArray<int32_t>(token_ids_) + num_tokens_);
  for (int i = n - num_logits; i < n; ++i) HostArray<int32_t>(logit_rows_)[num_logits_++] = num_tokens_ + i;
  HostArray<int64_t>(positions_)[num_seqs_] = position;
  HostArray<int32_t>(slots_)[num_seqs_] = slot;
  if (max_blocks_ > 0) {
    WEIR_CHECK(static_cast<int64_t>(blocks.size()) <= max_blocks_);
    std::copy(blocks.begin(), blocks.end(), HostArray<int32_t>(block_tables_) + num_seqs_ * max_blocks_);
  }
  num_tokens_ += n;
  max_seq_tokens_ = std::max(max_seq_tokens_, n);
  max_positions_ = std::max(max_positions_, position + n);
  HostArray<int32_t>(cu_seqlens_)[++num_seqs_] = num_tokens_;
}

void StepBatch::PadDecode(int num_seqs) {
  WEIR_CHECK(IsDecode());
  const auto fill = [&]<class T>(int64_t offset, T value) {
    std::fill(HostArray<T>(offset) + num_seqs_, HostArray<T>(offset) + num_seqs, value);
  };
  fill(token_ids_, int32_t{0});
  fill(logit_rows_, int32_t{0});
  fill(positions_, int64_t{0});
  fill(slots_, int32_t{-1});
  std::fill(HostArray<int32_t>(block_tables_) + num_seqs_ * max_blocks_,
            HostArray<int32_t>(block_tables_) + num_seqs * max_blocks_, -1);
  std::fill(HostArray<int32_t>(cu_seqlens_) + num_seqs_ + 1, HostArray<int32_t>(cu_seqlens_) + num_seqs + 1,
            num_tokens_);
  num_tokens_ = num_seqs_ = num_logits_ = num_seqs;
  max_seq_tokens_ = 1;  // also where there is no run at all: what is recorded is for one token each,
  max_positions_ = 0;   // as far as the block tables reach
}

void StepBatch::Upload(Stream& stream) {
  stream.CopyToDevice(buffer_.data(), host_.data(), block_tables_ + 4 * num_seqs_ * max_blocks_);
}

StepInput StepBatch::Input() const {
  const auto view = [this](int64_t offset, DType dtype, int64_t n) {
    return TensorView(buffer_.data() + offset, dtype, {n});
  };
  StepInput input;
  input.batch.num_tokens = num_tokens_;
  input.batch.num_seqs = num_seqs_;
  input.batch.max_seq_tokens = max_seq_tokens_;
  input.batch.max_positions = max_positions_;
  input.batch.cu_seqlens = view(cu_seqlens_, DType::kI32, num_seqs_ + 1);
  input.batch.slots = view(slots_, DType::kI32, num_seqs_);
  input.batch.positions = view(positions_, DType::kI64, num_seqs_);
  if (max_blocks_ > 0)
    input.batch.block_tables =
        TensorView(buffer_.data() + block_tables_, DType::kI32, {num_seqs_, max_blocks_});
  input.token_ids = view(token_ids_, DType::kI32, num_tokens_);
  input.logit_rows = view(logit_rows_, DType::kI32, num_logits_);
  return input;
}

}  // namespace weir
