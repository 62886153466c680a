#include "model/weights/weight_tensor.h"

#include <cmath>
#include <cstring>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

float ToFloat(float value) { return value; }
float ToFloat(F16 value) { return value.ToFloat(); }
float ToFloat(BF16 value) { return value.ToFloat(); }

// memcpy, because the bytes may lie at any address.
template <class T>
float LoadAs(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return ToFloat(value);
}

// Calls `use` with a loader (data, i) -> float for `dtype`.
template <class Use>
auto WithLoader(DType dtype, Use use) {
  switch (dtype) {
    case DType::kF32:
      return use(LoadAs<float>);
    case DType::kF16:
      return use(LoadAs<F16>);
    case DType::kBF16:
      return use(LoadAs<BF16>);
    case DType::kI8:
      return use(LoadAs<int8_t>);
    default:
      break;
  }
  WEIR_CHECK(!"a weight tensor is f32, f16, bf16 or int8");
  std::abort();
}

}  // namespace

int64_t WeightTensor::num_elements() const { return static_cast<int64_t>(data.size() / DTypeBytes(dtype)); }

float WeightTensor::At(int64_t i) const {
  WEIR_CHECK(i >= 0 && i < num_elements());
  return WithLoader(dtype, [&](auto load) { return load(data.data(), i); });
}

void WeightTensor::ToF32(std::span<float> out) const {
  WEIR_CHECK(static_cast<int64_t>(out.size()) == num_elements());
  ToF32(0, out);
}

void WeightTensor::ToF32(int64_t begin, std::span<float> out) const {
  const int64_t count = static_cast<int64_t>(out.size());
  WEIR_CHECK(begin >= 0 && begin <= num_elements() && count <= num_elements() - begin);
  WithLoader(dtype, [&](auto load) {
    for (int64_t i = 0; i < count; ++i) out[i] = load(data.data(), begin + i);
  });
}

std::vector<float> WeightTensor::ToF32() const {
  std::vector<float> out(num_elements());
  ToF32(out);
  return out;
}

absl::Status WeightTensor::CheckFinite() const {
  const int64_t count = num_elements();
  const int64_t bad = WithLoader(dtype, [&](auto load) {
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(load(data.data(), i))) return i;
    }
    return count;
  });
  if (bad == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("tensor {} of shape {} holds {} at index {}; the checkpoint is damaged", Quoted(name),
                  FormatShape(shape), At(bad), bad));
}

std::string FormatShape(std::span<const int64_t> shape) {
  // A hostile header can claim thousands of dimensions.
  constexpr size_t kMaxShown = 8;
  if (shape.size() <= kMaxShown) return fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("[{}, ... {} dimensions]", fmt::join(shape.first(kMaxShown), ", "), shape.size());
}

}  // namespace weir
