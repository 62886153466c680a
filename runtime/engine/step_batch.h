// StepBatch: the arrays of one step, packed on the host and copied to the device in one piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/engine/language_model.h"

namespace weir {

// Engine thread only. Allocated once for the largest step.
class StepBatch {
 public:
  static absl::StatusOr<StepBatch> Create(int max_tokens, int max_seqs, int max_logits,
                                          int64_t max_blocks_per_seq, Device& device);

  void Clear();
  // `blocks`: the sequence's KV blocks, empty without paged state. Logits are wanted for the last
  // `num_logits` tokens.
  void AddRun(int slot, int64_t position, std::span<const int32_t> tokens, std::span<const int32_t> blocks,
              int num_logits);
  int num_tokens() const { return num_tokens_; }
  int num_logits() const { return num_logits_; }

  // Copies the arrays to the device; the views stay valid until the next Clear().
  StepInput Upload(Stream& stream);

 private:
  StepBatch() = default;

  int num_tokens_ = 0;
  int num_seqs_ = 0;
  int num_logits_ = 0;
  int max_seq_tokens_ = 0;
  int64_t max_positions_ = 0;
  int64_t max_blocks_ = 0;
  // Offsets in bytes into `host_` and `buffer_`, which have the same layout.
  int64_t positions_ = 0, token_ids_ = 0, cu_seqlens_ = 0, slots_ = 0, logit_rows_ = 0, block_tables_ = 0;
  std::vector<std::byte> host_;
  DeviceBuffer buffer_;

  template <class T>
  T* HostArray(int64_t offset) {
    return reinterpret_cast<T*>(host_.data() + offset);
  }
};

}  // namespace weir
