// WeightTensor: one tensor of a checkpoint, in memory, in the element type that the file has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/tensor/dtype.h"

namespace weir {

// Immutable after construction; any number of threads. Copies share the bytes, which live as long as any
// copy: keep the WeightTensor, not only its `data`.
struct WeightTensor {
  std::string name;
  DType dtype = DType::kF32;        // kF32, kF16, kBF16 or kI8
  std::vector<int64_t> shape;       // row-major; [] is a scalar
  std::span<const std::byte> data;  // num_elements() * DTypeBytes(dtype) bytes, at any address
  std::shared_ptr<const std::byte[]> owner;

  int64_t num_elements() const;
  float At(int64_t i) const;  // element i in row-major order; of int8, here and below, without its scale
  // `out` [num_elements()], or for the second form elements [begin, begin + out.size()).
  void ToF32(std::span<float> out) const;
  void ToF32(int64_t begin, std::span<float> out) const;
  std::vector<float> ToF32() const;

  // INVALID_ARGUMENT naming the tensor, the index and the value of the first NaN or infinity.
  absl::Status CheckFinite() const;
};

// "[768, 1536]", for messages.
std::string FormatShape(std::span<const int64_t> shape);

}  // namespace weir
