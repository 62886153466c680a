// RowSampling: the rows of a step's logits that a device samples where they lie, and the others, which come
// to the host for its Sampler. Of the first only a few bytes a row come back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/engine/sampler.h"
#include "runtime/ops/sample/row_params.h"
#include "runtime/tensor/tensor.h"

namespace weir {

// Engine thread only. All is allocated at start. A step: Clear, one Add for each row that is wanted, Run,
// Stream::Synchronize, Result.
class RowSampling {
 public:
  // `max_rows`: rows of logits of one step. `num_ids`: ids from here on are padding. The device has
  // kSampleRows.
  static absl::StatusOr<RowSampling> Create(int max_rows, int32_t num_ids, Device& device);

  // Whether the device can: it edits no logits but suppressed ids, a few, and reports no alternatives.
  static bool Takes(const SamplingParams& params, std::span<const int32_t> suppressed_ids);

  void Clear();
  // As Sampler::Sample. A row that the device does not take is kept for the host.
  void Add(int row, const SamplingParams& params, uint64_t token_index,
           std::span<const int32_t> suppressed_ids);
  // As Sampler::ScoreOf. An id that is none of the tokenizer's is the host's.
  void AddTarget(int row, int32_t id);

  // Gives the stream the work and the copies, behind the step that computes `logits`, f32 [num_rows,
  // vocab_size] on the device. The host's rows come to the same rows of `logits_host`.
  void Run(const TensorView& logits, float* logits_host, Stream& stream);

  // Rows that Sampler has still to read.
  int64_t num_host_rows() const { return static_cast<int64_t>(host_rows_.size()); }
  // Below: of a row that was added, once the stream has been waited for.
  bool IsOnHost(int row) const { return entries_[row] < 0; }  // Sampler has still to read it
  SampleResult Result(int row) const;
  TargetScore Score(int row) const;

 private:
  RowSampling() = default;
  void KeepForHost(int row);
  RowParams* NewEntry(int row);

  const RowParams* params() const { return reinterpret_cast<const RowParams*>(host_params_.data()); }
  const RowSample* samples() const { return reinterpret_cast<const RowSample*>(host_samples_.data()); }

  int32_t num_ids_ = 0;
  int num_samples_ = 0;
  HostBuffer host_params_;        // RowParams [max_rows]
  HostBuffer host_samples_;       // RowSample [max_rows]
  std::vector<int32_t> entries_;  // [max_rows], per row: its place in the two, -1: the host's
  std::vector<int> host_rows_;    // in the order in which they were added
  DeviceBuffer device_params_, device_samples_;
};

}  // namespace weir
