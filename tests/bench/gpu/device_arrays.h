// Inputs of one measured row, in device memory that is freed with the object.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/status/status.h"
#include "runtime/device/device.h"
#include "runtime/ops/ragged_batch.h"
#include "runtime/tensor/tensor.h"

namespace weir::bench {

class DeviceArrays {
 public:
  explicit DeviceArrays(Device& device) : device_(device) {}

  // The first failure; views made since then are empty and must not be used.
  const absl::Status& status() const { return status_; }
  void Fail(const absl::Status& status) { status_.Update(status); }

  TensorView Zeros(DType dtype, std::initializer_list<int64_t> shape);
  // f32 or bf16: one random pattern from [low, high) again and again.
  TensorView Values(DType dtype, std::initializer_list<int64_t> shape, float low = -1.0f, float high = 1.0f);
  TensorView F32(int64_t rows, int64_t columns) { return Values(DType::kF32, {rows, columns}); }
  template <class T>
  TensorView Of(const std::vector<T>& values) {
    const TensorView view = Zeros(DTypeOf<T>::kValue, {static_cast<int64_t>(values.size())});
    Upload(values.data(), static_cast<int64_t>(values.size() * sizeof(T)), view.raw());
    return view;
  }

  // `sequences` runs of `tokens` from position `position` on, in slots 0, 1, ….
  RaggedBatch Batch(int sequences, int tokens, int64_t position);
  // The same with a table of KV blocks, which lie as those of sequences that grew together: block i of
  // sequence n is i · sequences + n.
  RaggedBatch PagedBatch(int sequences, int tokens, int64_t position);
  static int64_t BlocksOf(int sequences, int tokens, int64_t position);

 private:
  void Upload(const void* host, int64_t bytes, void* device);

  Device& device_;
  absl::Status status_;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace weir::bench
