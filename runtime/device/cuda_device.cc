// The CUDA backend's memory and stream, over the runtime API.
#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "runtime/device/device.h"

namespace weir {
namespace {

// The first error stays until Synchronize has reported it; work given meanwhile is dropped by the runtime or
// refused here. One thread at a time, like every Stream.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(int index) : index_(index) {
    Keep(cudaSetDevice(index_));
    Keep(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaStream() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Backend backend() const override { return Backend::kCuda; }
  // Kernels are launched on the calling thread's current device, and any thread may own the stream.
  void* native() override {
    Keep(cudaSetDevice(index_));
    return stream_;
  }
  void CopyToDevice(void* dst, const void* src, int64_t bytes) override {
    Copy(dst, src, bytes, cudaMemcpyHostToDevice);
  }
  void CopyToHost(void* dst, const void* src, int64_t bytes) override {
    Copy(dst, src, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyOnDevice(void* dst, const void* src, int64_t bytes) override {
    Copy(dst, src, bytes, cudaMemcpyDeviceToDevice);
  }
  void Zero(void* dst, int64_t bytes) override {
    if (bytes > 0 && error_ == cudaSuccess)
      Keep(cudaMemsetAsync(dst, 0, static_cast<size_t>(bytes), stream_));
  }
  absl::Status Synchronize() override {
    Keep(cudaStreamSynchronize(stream_));
    Keep(cudaGetLastError());  // of launches
    const cudaError_t error = std::exchange(error_, cudaSuccess);
    if (error == cudaSuccess) return absl::OkStatus();
    return absl::InternalError(
        fmt::format("cuda:{}: {} ({}); the device's work since the last synchronize is "
                    "lost; restart the server if this repeats",
                    index_, cudaGetErrorString(error), cudaGetErrorName(error)));
  }

 private:
  void Copy(void* dst, const void* src, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0 && error_ == cudaSuccess)
      Keep(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), kind, stream_));
  }
  void Keep(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

  const int index_;
  cudaStream_t stream_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index), name_(fmt::format("cuda:{}", index)), stream_(index) {}

  Backend backend() const override { return Backend::kCuda; }
  const std::string& name() const override { return name_; }
  Stream& stream() override { return stream_; }
  int64_t allocated_bytes() const override { return allocated_.load(std::memory_order_relaxed); }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    void* data = nullptr;
    cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess && bytes > 0) error = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (error == cudaSuccess && bytes > 0) {
      stream_.Zero(data, bytes);
      error = cudaStreamSynchronize(static_cast<cudaStream_t>(stream_.native()));
    }
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // reported here, not at the next Synchronize
      if (data != nullptr) cudaFree(data);
      const std::string message =
          fmt::format("cannot allocate {} bytes on {}: {}", bytes, name_, cudaGetErrorString(error));
      return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                                : absl::InternalError(message);
    }
    allocated_.fetch_add(bytes, std::memory_order_relaxed);
    return DeviceBuffer(this, data, bytes);
  }

 private:
  void Free(void* data, int64_t bytes) override {
    if (data == nullptr) return;
    cudaSetDevice(index_);
    cudaFree(data);
    allocated_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  const int index_;
  const std::string name_;
  CudaStream stream_;
  std::atomic<int64_t> allocated_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int index) {
  const std::string name = fmt::format("cuda:{}", index);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return absl::FailedPreconditionError(
        fmt::format("device '{}': no usable NVIDIA GPU ({}); install its driver, give the container the GPU "
                    "(--gpus all), "
                    "or use --device cpu",
                    name, error == cudaSuccess ? "none found" : cudaGetErrorString(error)));
  }
  if (index >= count)
    return absl::FailedPreconditionError(fmt::format(
        "device '{}': this machine has {} GPU(s); use cuda:0 to cuda:{}", name, count, count - 1));
  auto device = std::make_unique<CudaDevice>(index);
  // A GPU that another process holds, or that this build's kernels do not cover, shows here.
  const absl::Status status = device->stream().Synchronize();
  if (!status.ok())
    return absl::FailedPreconditionError(fmt::format("device '{}' cannot be used: {}; or use --device cpu",
                                                     name, std::string(status.message())));
  return device;
}

}  // namespace weir
