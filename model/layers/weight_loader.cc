#include "model/layers/weight_loader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/linear_recurrence/cuda_shared_bytes.h"
#include "runtime/ops/matmul/quantize.h"

namespace weir {
namespace {

// A matrix as the files have it.
struct StoredMatrix {
  WeightTensor values;        // [n, k]
  std::vector<float> scales;  // [n], of int8

  int64_t n() const { return values.shape[0]; }
  TensorView View() const {
    return TensorView(const_cast<std::byte*>(values.data.data()), values.dtype, {n(), values.shape[1]});
  }
};

absl::StatusOr<std::vector<float>> ReadScales(const WeightMap& weights, const std::string& matrix,
                                              int64_t n) {
  const std::string name = ScaleName(matrix);
  const SafetensorsEntry* entry = weights.Find(name);
  if (entry == nullptr)
    return absl::NotFoundError(fmt::format(
        "tensor '{}' is int8, and its scales, tensor '{}', are missing; only int8 with one scale per output "
        "channel is served",
        matrix, name));
  const bool flat = entry->shape.size() == 1;
  WEIR_ASSIGN_OR_RETURN(const WeightTensor tensor,
                        flat ? weights.Get(name, {n}) : weights.Get(name, {n, int64_t{1}}));
  WEIR_RETURN_IF_ERROR(tensor.CheckFinite());
  return tensor.ToF32();
}

absl::StatusOr<StoredMatrix> ReadMatrix(const WeightMap& weights, const std::string& name, int64_t n,
                                        int64_t k) {
  StoredMatrix matrix;
  const SafetensorsEntry* entry = weights.Find(name);
  if (entry != nullptr && entry->dtype == DType::kI8) {
    WEIR_ASSIGN_OR_RETURN(matrix.values, weights.GetInt8(name, std::array{n, k}));
    WEIR_ASSIGN_OR_RETURN(matrix.scales, ReadScales(weights, name, n));
    return matrix;
  }
  WEIR_ASSIGN_OR_RETURN(matrix.values, weights.Get(name, {n, k}));
  WEIR_RETURN_IF_ERROR(matrix.values.CheckFinite());
  return matrix;
}

DType DTypeOfAll(std::span<const StoredMatrix> parts) {
  const auto is = [](DType dtype) {
    return [dtype](const StoredMatrix& part) { return part.values.dtype == dtype; };
  };
  if (std::any_of(parts.begin(), parts.end(), is(DType::kI8))) return DType::kI8;
  return std::all_of(parts.begin(), parts.end(), is(DType::kBF16)) ? DType::kBF16 : DType::kF32;
}

int64_t RowsOf(std::span<const StoredMatrix> parts) {
  int64_t rows = 0;
  for (const StoredMatrix& part : parts) rows += part.n();
  return rows;
}

void CopyRow(const StoredMatrix& part, int64_t row, std::span<float> out) {
  part.values.ToF32(row * std::ssize(out), out);
  if (part.scales.empty()) return;
  for (float& value : out) value *= part.scales[static_cast<size_t>(row)];
}

void Assign(std::span<const float> from, float* to) { std::copy(from.begin(), from.end(), to); }
void Assign(std::span<const float> from, BF16* to) {
  std::transform(from.begin(), from.end(), to, BF16::FromFloat);
}

// As T, float or BF16.
template <class T>
absl::StatusOr<PackedMatrix> PackFloats(std::span<const StoredMatrix> parts, int64_t k, Device& device) {
  const int64_t rows = RowsOf(parts);
  std::vector<T> values(static_cast<size_t>(rows * k));
  std::vector<float> row(static_cast<size_t>(k));
  T* out = values.data();
  for (const StoredMatrix& part : parts) {
    if (part.values.dtype == DTypeOf<T>::kValue) {
      std::memcpy(out, part.values.data.data(), part.values.data.size());
      out += part.values.num_elements();
      continue;
    }
    for (int64_t r = 0; r < part.n(); ++r, out += k) {
      CopyRow(part, r, row);
      Assign(row, out);
    }
  }
  return PackedMatrix::Pack(TensorView(values.data(), DTypeOf<T>::kValue, {rows, k}), device);
}

// int8 as it is, floats quantized.
absl::StatusOr<PackedMatrix> PackInt8(std::span<const StoredMatrix> parts, int64_t k, Device& device) {
  const int64_t rows = RowsOf(parts);
  std::vector<int8_t> values(static_cast<size_t>(rows * k));
  std::vector<float> scales(static_cast<size_t>(rows));
  size_t row = 0;
  for (const StoredMatrix& part : parts) {
    const auto n = static_cast<size_t>(part.n());
    const auto out = std::span(values).subspan(row * static_cast<size_t>(k), n * static_cast<size_t>(k));
    if (part.values.dtype == DType::kI8) {
      std::memcpy(out.data(), part.values.data.data(), out.size());
      std::copy(part.scales.begin(), part.scales.end(), scales.begin() + static_cast<int64_t>(row));
    } else {
      QuantizeRows(part.View(), out, std::span(scales).subspan(row, n));
    }
    row += n;
  }
  return PackedMatrix::PackInt8(TensorView(values.data(), DType::kI8, {rows, k}), scales, device);
}

}  // namespace

absl::StatusOr<PackedMatrix> WeightLoader::Matrix(const std::string& name, int64_t n, int64_t k) const {
  const MatrixPart part = {name, n};
  return Matrix(std::span(&part, 1), k);
}

absl::StatusOr<PackedMatrix> WeightLoader::Matrix(std::span<const MatrixPart> parts, int64_t k) const {
  std::vector<StoredMatrix> stored;
  for (const MatrixPart& part : parts) {
    WEIR_ASSIGN_OR_RETURN(StoredMatrix matrix, ReadMatrix(weights_, part.name, part.n, k));
    stored.push_back(std::move(matrix));
    matrices_.push_back(part.name);
  }
  const DType natural = DTypeOfAll(stored);
  const DType served = served_.value_or(natural);
  converted_ = converted_ || served != natural;
  switch (served) {
    case DType::kI8:
      return PackInt8(stored, k, device_);
    case DType::kBF16:
      return PackFloats<BF16>(stored, k, device_);
    default:
      return PackFloats<float>(stored, k, device_);
  }
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
