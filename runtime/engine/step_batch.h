// StepBatch: the arrays of one step, packed on the host and copied to the device in one piece.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/engine/language_model.h"

namespace weir {

// Engine thread only. Allocated once for the largest step; every array has its place whatever the step is, so
// that recorded work finds it there. The host arrays are the stream's from Upload until it is synchronised.
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
  int num_seqs() const { return num_seqs_; }
  int num_logits() const { return num_logits_; }
  // Every run is one token with its logits wanted.
  bool IsDecode() const {
    return num_tokens_ == num_seqs_ && num_logits_ == num_seqs_ && max_seq_tokens_ <= 1;
  }

  // Of a decode step: as many runs, tokens and logit rows as `num_seqs` decoding sequences have. Runs that
  // are added have no tokens, so they change no state, and name no slot and no block: a kernel that touched
  // one would be caught. The tokens that are added belong to no run and are id 0: what is computed for them,
  // and the logits, nobody reads.
  void PadDecode(int num_seqs);

  void Upload(Stream& stream);
  // The arrays on the device, valid until the next Clear().
  StepInput Input() const;

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
  HostBuffer host_;
  DeviceBuffer buffer_;

  template <class T>
  T* HostArray(int64_t offset) {
    return reinterpret_cast<T*>(host_.data() + offset);
  }
};

}  // namespace weir
