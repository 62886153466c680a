// The CUDA backend's memory, over the runtime API.
#include <cuda_runtime.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "fmt/format.h"
#include "runtime/base/cpu_info.h"
#include "runtime/device/cuda_stream.h"
#include "runtime/device/device.h"
#include "runtime/device/worker_pool.h"

namespace weir {
namespace {

constexpr int kOldestCapability = 80;  // 8.0, Ampere: bf16 tensor cores and cp.async (cuda_ptx.cuh)

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, int num_threads)
      : index_(index), name_(fmt::format("cuda:{}", index)), workers_(num_threads), stream_(index) {}

  // What the constructor could not do, and whether this build's kernels run there.
  absl::Status Check() {
    if (absl::Status status = stream_.Synchronize(); !status.ok()) return status;
    size_t free = 0, total = 0;
    cudaDeviceProp properties{};
    cudaError_t error = cudaMemGetInfo(&free, &total);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index_);
    if (error != cudaSuccess) return absl::InternalError(CudaErrorText(error));
    memory_bytes_ = static_cast<int64_t>(total);
    description_ = properties.name;
    if (properties.major * 10 + properties.minor >= kOldestCapability) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("{} has compute capability {}.{}, and Weir's kernels need 8.0 (Ampere) or later",
                    description_, properties.major, properties.minor));
  }

  Backend backend() const override { return Backend::kCuda; }
  const std::string& name() const override { return name_; }
  Stream& stream() override { return stream_; }
  std::string Description() const override { return description_; }
  WorkerPool& workers() override { return workers_; }
  int64_t allocated_bytes() const override { return allocated_.load(std::memory_order_relaxed); }
  int64_t allocated_host_bytes() const override { return allocated_host_.load(std::memory_order_relaxed); }
  int64_t memory_bytes() const override { return memory_bytes_; }
  int64_t used_bytes() const override {
    size_t free = 0, total = 0;
    cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
    if (error == cudaSuccess) return static_cast<int64_t>(total - free);
    static_cast<void>(cudaGetLastError());  // of the calling thread, which has no use for it
    return 0;
  }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    void* data = nullptr;
    cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess && bytes > 0) error = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (error == cudaSuccess && bytes > 0) {
      const auto stream = static_cast<cudaStream_t>(stream_.native());
      error = cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream);
      if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    }
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // reported here, not at the next Synchronize
      if (data != nullptr) cudaFree(data);
      return CannotAllocate(fmt::format("{} bytes on {}", bytes, name_), error);
    }
    allocated_.fetch_add(bytes, std::memory_order_relaxed);
    return DeviceBuffer(this, data, bytes);
  }

  absl::StatusOr<HostBuffer> AllocateHost(int64_t bytes) override {
    void* data = nullptr;
    cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess && bytes > 0)
      error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return CannotAllocate(fmt::format("{} bytes of page-locked host memory", bytes), error);
    }
    if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
    allocated_host_.fetch_add(bytes, std::memory_order_relaxed);
    return HostBuffer(this, data, bytes);
  }

 private:
  absl::Status CannotAllocate(const std::string& what, cudaError_t error) const {
    if (error != cudaErrorMemoryAllocation)
      return absl::InternalError(fmt::format("cannot allocate {}: {}", what, CudaErrorText(error)));
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) static_cast<void>(cudaGetLastError());
    return absl::ResourceExhaustedError(
        fmt::format("cannot allocate {}: {} of the {} bytes of {} are free", what, free, total, name_));
  }

  // Errors are those of a device that is lost already; there is nobody to tell and nothing to do.
  void Free(MemoryKind kind, void* data, int64_t bytes) override {
    if (data == nullptr) return;
    static_cast<void>(cudaSetDevice(index_));
    static_cast<void>(kind == MemoryKind::kDevice ? cudaFree(data) : cudaFreeHost(data));
    (kind == MemoryKind::kDevice ? allocated_ : allocated_host_).fetch_sub(bytes, std::memory_order_relaxed);
  }

  const int index_;
  const std::string name_;
  std::string description_;
  int64_t memory_bytes_ = 0;
  WorkerPool workers_;
  CudaStream stream_;
  std::atomic<int64_t> allocated_{0}, allocated_host_{0};
};

// Why there is no GPU. The runtime calls a missing driver an old one.
std::string NoGpu(cudaError_t error) {
  if (error == cudaSuccess) return "none found";
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no driver that works";
  return fmt::format("its driver is for CUDA {}.{}, and this program needs one for {}.0 or later",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int index, int num_threads) {
  const std::string name = fmt::format("cuda:{}", index);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return absl::FailedPreconditionError(
        fmt::format("device '{}': no usable NVIDIA GPU ({}); install its driver, give the container the GPU "
                    "(--gpus all), or use --device cpu",
                    name, NoGpu(error)));
  }
  if (index >= count)
    return absl::FailedPreconditionError(fmt::format(
        "device '{}': this machine has {} GPU(s); use cuda:0 to cuda:{}", name, count, count - 1));
  auto device = std::make_unique<CudaDevice>(index, num_threads > 0 ? num_threads : UsableCpus());
  // A GPU that another process holds shows here too.
  if (const absl::Status status = device->Check(); !status.ok()) {
    static_cast<void>(cudaGetLastError());
    return absl::FailedPreconditionError(fmt::format("device '{}' cannot be used: {}; or use --device cpu",
                                                     name, std::string(status.message())));
  }
  return device;
}

}  // namespace weir
