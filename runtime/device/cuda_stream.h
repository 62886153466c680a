// The CUDA backend's stream, for cuda_device.cc.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "runtime/device/device.h"

namespace weir {

// The first error stays until Synchronize has reported it; work given meanwhile is dropped by the runtime or
// refused here. One thread at a time, like every Stream.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(int index);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Backend backend() const override { return Backend::kCuda; }
  void* native() override;
  void CopyToDevice(void* dst, const void* src, int64_t bytes) override;
  void CopyToHost(void* dst, const void* src, int64_t bytes) override;
  void CopyOnDevice(void* dst, const void* src, int64_t bytes) override;
  void Zero(void* dst, int64_t bytes) override;
  absl::Status Synchronize() override;
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<StepGraph>> EndCapture() override;
  void Replay(const StepGraph& graph) override;
  // A library that works on this stream has failed; Synchronize reports `error` unless the runtime knows why.
  void Fail(cudaError_t error);

 private:
  // Before every call: any thread may own the stream, and the runtime works on the calling thread's current
  // device. Kernels, memsets and recordings must be that one's; a copy need not, but would make a context on
  // the first GPU, hundreds of MB of its memory. False once there is an error.
  bool Enter() {
    Keep(cudaSetDevice(index_));
    return error_ == cudaSuccess;
  }
  void Copy(void* dst, const void* src, int64_t bytes, cudaMemcpyKind kind);
  void Keep(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }
  // The error kept, or that of a launch; forgets it.
  cudaError_t TakeError();

  const int index_;
  cudaStream_t stream_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

// "an illegal memory access was encountered (cudaErrorIllegalAddress)"
std::string CudaErrorText(cudaError_t error);

}  // namespace weir
