// What every kernel test needs: tensors between red zones that start as NaN, reproducible random numbers, and
// the error measure that kernels are held to against their double-precision references.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir {

// A host tensor between two red zones. Every byte starts as 0xFF, which is NaN in all float types and -1 in
// integers, so that an element read before it was written shows. `row_padding` elements lie between the rows
// of a rank-2 tensor, and are red zone too. Not movable: views point into it.
class Guarded {
 public:
  Guarded(DType dtype, std::initializer_list<int64_t> shape, int64_t row_padding = 0);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT(google-explicit-constructor)
  template <class T>
  T* row(int64_t i) const {
    return view_.row<T>(i);
  }

  // False when a byte outside the tensor has changed.
  bool RedZonesIntact() const;
  // Bytes of the tensor itself, row after row, to compare bit for bit.
  std::vector<std::byte> Bytes() const;
  // All elements in row-major order as doubles.
  std::vector<double> ToDoubles() const;
  void Fill(double value);
  // Row-major; the count must match. Rounds to the dtype.
  void Assign(const std::vector<double>& values);

 private:
  std::vector<std::byte> storage_;
  int64_t offset_ = 0;
  TensorView view_;
};

// Same seed, same numbers, on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double Uniform(double low, double high);
  double Normal();
  int Int(int low, int high);  // both ends included

  void FillNormal(const TensorView& tensor, double scale = 1.0);
  void FillUniform(const TensorView& tensor, double low, double high);

 private:
  std::mt19937_64 engine_;
};

// sum (actual - expected)² / sum expected²; infinite when an actual value is not finite or sizes differ.
double Nmse(const TensorView& actual, const std::vector<double>& expected);
double Nmse(const std::vector<double>& actual, const std::vector<double>& expected);
// max |actual - expected| / max |expected|; infinite as above.
double MaxRelativeError(const std::vector<double>& actual, const std::vector<double>& expected);

// Limits of Nmse for a kernel that computes in f32, or on bf16-rounded inputs with f32 sums.
inline constexpr double kNmseF32 = 1e-11;
inline constexpr double kNmseBF16 = 1e-5;

}  // namespace weir
