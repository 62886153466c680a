// TensorView: a non-owning window on row-major memory. Rows (dimension 0) may be further apart than their
// length, so that a slice of columns of a fused projection is a view too; inner dimensions are dense.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "runtime/base/check.h"
#include "runtime/tensor/dtype.h"

namespace weir {

class TensorView {
 public:
  static constexpr int kMaxRank = 4;

  TensorView() = default;
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape) : data_(data), dtype_(dtype) {
    WEIR_CHECK(shape.size() >= 1 && shape.size() <= kMaxRank);
    for (int64_t extent : shape) shape_[rank_++] = extent;
    row_stride_ = row_size();
  }

  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t num_rows() const { return shape_[0]; }
  int64_t row_size() const {  // elements in one row
    int64_t n = 1;
    for (int i = 1; i < rank_; ++i) n *= shape_[i];
    return n;
  }
  int64_t num_elements() const { return rank_ == 0 ? 0 : shape_[0] * row_size(); }
  int64_t row_stride() const { return row_stride_; }  // elements between the starts of two rows
  void set_row_stride(int64_t elements) {
    WEIR_CHECK(elements >= row_size());
    row_stride_ = elements;
  }
  bool empty() const { return data_ == nullptr; }
  void* raw() const { return data_; }

  template <class T>
  T* data() const {
    WEIR_CHECK(dtype_ == DTypeOf<T>::kValue);
    return static_cast<T*>(data_);
  }
  template <class T>
  T* row(int64_t i) const {
    return data<T>() + i * row_stride_;
  }

  // The same window on other memory.
  TensorView On(void* data) const {
    TensorView view = *this;
    view.data_ = data;
    return view;
  }
  // Columns [begin, begin + count) of a rank-2 view, keeping the row stride.
  TensorView Columns(int64_t begin, int64_t count) const {
    WEIR_CHECK(rank_ == 2 && begin >= 0 && count >= 0 && begin + count <= shape_[1]);
    TensorView view = *this;
    view.data_ = static_cast<char*>(data_) + begin * static_cast<int64_t>(DTypeBytes(dtype_));
    view.shape_[1] = count;
    return view;
  }
  // Rows [begin, begin + count).
  TensorView Rows(int64_t begin, int64_t count) const {
    WEIR_CHECK(begin >= 0 && count >= 0 && begin + count <= shape_[0]);
    TensorView view = *this;
    view.data_ = static_cast<char*>(data_) + begin * row_stride_ * static_cast<int64_t>(DTypeBytes(dtype_));
    view.shape_[0] = count;
    return view;
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  int64_t row_stride_ = 0;
};

}  // namespace weir
