// A RaggedBatch with its index tensors, made from a list of runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/ops/ragged_batch.h"

namespace weir {

struct RunSpec {
  int tokens = 0;
  int64_t position = 0;
  int slot = 0;
};

// Host memory only. Not movable: the batch points into it.
class Ragged {
 public:
  explicit Ragged(const std::vector<RunSpec>& runs) {
    cu_seqlens_.push_back(0);
    for (const RunSpec& run : runs) {
      cu_seqlens_.push_back(cu_seqlens_.back() + run.tokens);
      slots_.push_back(run.slot);
      positions_.push_back(run.position);
      batch_.max_seq_tokens = run.tokens > batch_.max_seq_tokens ? run.tokens : batch_.max_seq_tokens;
      batch_.max_positions = std::max(batch_.max_positions, run.position + run.tokens);
    }
    batch_.num_tokens = cu_seqlens_.back();
    batch_.num_seqs = static_cast<int>(runs.size());
    batch_.cu_seqlens = TensorView(cu_seqlens_.data(), DType::kI32, {batch_.num_seqs + 1});
    batch_.slots = TensorView(slots_.data(), DType::kI32, {batch_.num_seqs});
    batch_.positions = TensorView(positions_.data(), DType::kI64, {batch_.num_seqs});
  }
  Ragged(const Ragged&) = delete;
  Ragged& operator=(const Ragged&) = delete;

  const RaggedBatch& batch() const { return batch_; }
  int num_tokens() const { return batch_.num_tokens; }

 private:
  std::vector<int32_t> cu_seqlens_;
  std::vector<int32_t> slots_;
  std::vector<int64_t> positions_;
  RaggedBatch batch_;
};

}  // namespace weir
