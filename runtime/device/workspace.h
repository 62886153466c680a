// Workspace: scratch memory of one step, handed out from one buffer that is allocated once.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "runtime/base/check.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir {

// Engine thread only. Tensors live until the scope that was open when they were made ends.
class Workspace {
 public:
  static constexpr int64_t kAlignment = 64;

  Workspace() = default;
  explicit Workspace(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}

  // Bytes that one tensor takes here.
  static int64_t BytesFor(DType dtype, int64_t num_elements) {
    return (num_elements * static_cast<int64_t>(DTypeBytes(dtype)) + kAlignment - 1) / kAlignment *
           kAlignment;
  }

  TensorView Allocate(DType dtype, std::initializer_list<int64_t> shape) {
    TensorView view(buffer_.data() + used_, dtype, shape);
    used_ += BytesFor(dtype, view.num_elements());
    WEIR_CHECK(used_ <= buffer_.bytes());  // the model declared too little
    return view;
  }
  TensorView F32(int64_t rows, int64_t columns) { return Allocate(DType::kF32, {rows, columns}); }

  int64_t FreeElements(DType dtype) const {
    return (buffer_.bytes() - used_) / static_cast<int64_t>(DTypeBytes(dtype));
  }

  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Scope() { workspace_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    const int64_t mark_;
  };

  int64_t bytes() const { return buffer_.bytes(); }

 private:
  DeviceBuffer buffer_;
  int64_t used_ = 0;
};

}  // namespace weir
