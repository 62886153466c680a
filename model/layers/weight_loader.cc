#include "model/layers/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/linear_recurrence/cuda_shared_bytes.h"

namespace weir {

absl::StatusOr<PackedMatrix> WeightLoader::Matrix(const std::string& name, int64_t n, int64_t k) const {
  const MatrixPart part = {name, n};
  return Matrix(std::span(&part, 1), k);
}

absl::StatusOr<PackedMatrix> WeightLoader::Matrix(std::span<const MatrixPart> parts, int64_t k) const {
  int64_t rows = 0;
  std::vector<WeightTensor> tensors;
  for (const MatrixPart& part : parts) {
    WEIR_ASSIGN_OR_RETURN(WeightTensor tensor, weights_.Get(part.name, {part.n, k}));
    WEIR_RETURN_IF_ERROR(tensor.CheckFinite());
    tensors.push_back(std::move(tensor));
    rows += part.n;
  }
  const bool bf16 = !f32_only_ && std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return tensor.dtype == DType::kBF16;
  });
  if (bf16) {
    std::vector<BF16> values(rows * k);
    int64_t at = 0;
    for (const WeightTensor& tensor : tensors) {
      std::memcpy(values.data() + at, tensor.data.data(), tensor.data.size());
      at += tensor.num_elements();
    }
    return PackedMatrix::Pack(TensorView(values.data(), DType::kBF16, {rows, k}), device_);
  }
  std::vector<float> values(rows * k);
  int64_t at = 0;
  for (const WeightTensor& tensor : tensors) {
    tensor.ToF32(std::span(values).subspan(at, tensor.num_elements()));
    at += tensor.num_elements();
  }
  return PackedMatrix::Pack(TensorView(values.data(), DType::kF32, {rows, k}), device_);
}

absl::Status WeightLoader::RequireCudaLimit(std::string_view what, int64_t value, int64_t limit) const {
  if (device_.backend() != Backend::kCuda || value <= limit) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} is {}, and kernels on {} take at most {}; run this model with --device cpu", what,
                  value, device_.name(), limit));
}

absl::Status WeightLoader::RequireRecurrenceFits(int64_t state_dim, int64_t head_dim, int64_t queries) const {
  if (device_.backend() != Backend::kCuda) return absl::OkStatus();
  const CudaSharedBytes bytes = RecurrenceSharedBytes(state_dim, head_dim, queries, device_);
  return RequireCudaLimit(fmt::format("the shared memory, in bytes, for states of {} x {} that {} heads read",
                                      state_dim, head_dim, queries),
                          bytes.needed, bytes.available);
}

absl::StatusOr<DeviceTensor> WeightLoader::Vector(const std::string& name, int64_t n) const {
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> values, Values(name, {n}));
  return Upload(values);
}

absl::StatusOr<std::vector<float>> WeightLoader::Values(const std::string& name,
                                                        const std::vector<int64_t>& shape) const {
  WEIR_ASSIGN_OR_RETURN(const WeightTensor tensor, weights_.Get(name, shape));
  WEIR_RETURN_IF_ERROR(tensor.CheckFinite());
  return tensor.ToF32();
}

absl::StatusOr<DeviceTensor> WeightLoader::ConvFilter(std::span<const MatrixPart> parts,
                                                      int64_t width) const {
  int64_t channels = 0;
  for (const MatrixPart& part : parts) channels += part.n;
  std::vector<float> transposed(width * channels);
  int64_t first = 0;
  for (const MatrixPart& part : parts) {
    WEIR_ASSIGN_OR_RETURN(const WeightTensor tensor, weights_.Get(part.name, {part.n, 1, width}));
    WEIR_RETURN_IF_ERROR(tensor.CheckFinite());
    for (int64_t c = 0; c < part.n; ++c)
      for (int64_t w = 0; w < width; ++w) transposed[w * channels + first + c] = tensor.At(c * width + w);
    first += part.n;
  }
  return Upload(transposed, width, channels);
}

absl::StatusOr<DeviceTensor> WeightLoader::Upload(std::span<const float> values) const {
  return UploadAs(values, {static_cast<int64_t>(values.size())});
}

absl::StatusOr<DeviceTensor> WeightLoader::Upload(std::span<const float> values, int64_t rows,
                                                  int64_t columns) const {
  return UploadAs(values, {rows, columns});
}

absl::StatusOr<DeviceTensor> WeightLoader::UploadAs(std::span<const float> values,
                                                    std::initializer_list<int64_t> shape) const {
  WEIR_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(static_cast<int64_t>(values.size_bytes())));
  device_.stream().CopyToDevice(buffer.data(), values.data(), buffer.bytes());
  WEIR_RETURN_IF_ERROR(device_.stream().Synchronize());
  const TensorView view(buffer.data(), DType::kF32, shape);
  return DeviceTensor(std::move(buffer), view);
}

}  // namespace weir
