#include "tests/support/kernel_parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/check.h"

namespace weir {
namespace {

constexpr int64_t kRedZoneBytes = 256;  // keeps 64-byte alignment; wider than any vector
constexpr std::byte kFill{0xFF};

double LoadElement(const void* row, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(row)[i];
    case DType::kF16:
      return static_cast<const F16*>(row)[i].ToFloat();
    case DType::kBF16:
      return static_cast<const BF16*>(row)[i].ToFloat();
    case DType::kI8:
      return static_cast<const int8_t*>(row)[i];
    case DType::kI32:
      return static_cast<const int32_t*>(row)[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(row)[i]);
  }
  return 0.0;
}

void StoreElement(void* row, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(row)[i] = static_cast<float>(value);
      return;
    case DType::kF16:
      static_cast<F16*>(row)[i] = F16::FromFloat(static_cast<float>(value));
      return;
    case DType::kBF16:
      static_cast<BF16*>(row)[i] = BF16::FromFloat(static_cast<float>(value));
      return;
    case DType::kI8:
      static_cast<int8_t*>(row)[i] = static_cast<int8_t>(value);
      return;
    case DType::kI32:
      static_cast<int32_t*>(row)[i] = static_cast<int32_t>(value);
      return;
    case DType::kI64:
      static_cast<int64_t*>(row)[i] = static_cast<int64_t>(value);
      return;
  }
}

std::byte* RowBytes(const TensorView& tensor, int64_t i) {
  return static_cast<std::byte*>(tensor.raw()) +
         i * tensor.row_stride() * static_cast<int64_t>(DTypeBytes(tensor.dtype()));
}

template <class Produce>
void ForEachElement(const TensorView& tensor, Produce produce) {
  for (int64_t i = 0; i < tensor.num_rows(); ++i)
    for (int64_t j = 0; j < tensor.row_size(); ++j)
      StoreElement(RowBytes(tensor, i), tensor.dtype(), j, produce());
}

std::vector<double> Doubles(const TensorView& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(tensor.num_elements()));
  for (int64_t i = 0; i < tensor.num_rows(); ++i)
    for (int64_t j = 0; j < tensor.row_size(); ++j)
      values.push_back(LoadElement(RowBytes(tensor, i), tensor.dtype(), j));
  return values;
}

}  // namespace

Guarded::Guarded(DType dtype, std::initializer_list<int64_t> shape, int64_t row_padding) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  if (row_padding > 0) {
    WEIR_CHECK(shape.size() == 2);
    elements += *shape.begin() * row_padding;
  }
  const int64_t bytes = elements * static_cast<int64_t>(DTypeBytes(dtype));
  // 64 more, to move the start to a 64-byte boundary.
  storage_.assign(static_cast<size_t>(bytes + 2 * kRedZoneBytes + 64), kFill);
  const auto address = reinterpret_cast<uintptr_t>(storage_.data());
  offset_ = kRedZoneBytes + static_cast<int64_t>((64 - address % 64) % 64);
  std::byte* data = storage_.data() + offset_;
  if (row_padding > 0) {
    const int64_t columns = *(shape.begin() + 1);
    view_ = TensorView(data, dtype, {*shape.begin(), columns + row_padding}).Columns(0, columns);
  } else {
    view_ = TensorView(data, dtype, shape);
  }
}

bool Guarded::RedZonesIntact() const {
  const int64_t element = static_cast<int64_t>(DTypeBytes(view_.dtype()));
  const int64_t row_bytes = view_.row_size() * element;
  const int64_t stride_bytes = view_.row_stride() * element;
  int64_t next = 0;
  const auto intact = [&](int64_t begin, int64_t end) {
    return std::all_of(storage_.begin() + begin, storage_.begin() + end,
                       [](std::byte b) { return b == kFill; });
  };
  for (int64_t i = 0; i < view_.num_rows(); ++i) {
    if (!intact(next, offset_ + i * stride_bytes)) return false;
    next = offset_ + i * stride_bytes + row_bytes;
  }
  return intact(next, static_cast<int64_t>(storage_.size()));
}

std::vector<std::byte> Guarded::Bytes() const {
  std::vector<std::byte> bytes;
  const int64_t row_bytes = view_.row_size() * static_cast<int64_t>(DTypeBytes(view_.dtype()));
  for (int64_t i = 0; i < view_.num_rows(); ++i)
    bytes.insert(bytes.end(), RowBytes(view_, i), RowBytes(view_, i) + row_bytes);
  return bytes;
}

std::vector<double> Guarded::ToDoubles() const { return Doubles(view_); }

void Guarded::Fill(double value) {
  ForEachElement(view_, [&] { return value; });
}

void Guarded::Assign(const std::vector<double>& values) {
  WEIR_CHECK(static_cast<int64_t>(values.size()) == view_.num_elements());
  size_t next = 0;
  ForEachElement(view_, [&] { return values[next++]; });
}

// The standard's distributions differ between libraries; these do not.
double Random::Uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(engine_() >> 11) * 0x1.0p-53);
}

double Random::Normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform(0.0, 1.0)));
  return radius * std::cos(2.0 * 3.14159265358979323846 * Uniform(0.0, 1.0));
}

int Random::Int(int low, int high) {
  return low + static_cast<int>(engine_() % (static_cast<uint64_t>(high - low) + 1));
}

void Random::FillNormal(const TensorView& tensor, double scale) {
  ForEachElement(tensor, [&] { return scale * Normal(); });
}

void Random::FillUniform(const TensorView& tensor, double low, double high) {
  ForEachElement(tensor, [&] { return Uniform(low, high); });
}

double Nmse(const TensorView& actual, const std::vector<double>& expected) {
  return Nmse(Doubles(actual), expected);
}

double Nmse(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    power += expected[i] * expected[i];
  }
  return error == 0.0 ? 0.0 : error / power;
}

double MaxRelativeError(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error == 0.0 ? 0.0 : error / largest;
}

}  // namespace weir
