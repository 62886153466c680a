// Device and Stream: the only virtual parts of a backend. A Device owns memory, a Stream orders work on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/cuda_column.h"

namespace weir {

enum class Backend : uint8_t { kCpu, kCuda };

class Device;

class WorkerPool;

enum class MemoryKind : uint8_t { kDevice, kHost };

// Memory of one kind, 64-byte aligned, zeroed when made. Freed by its owner's destructor; outlived by its
// Device.
template <MemoryKind kKind>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, int64_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// What kernels work on; the host must not touch it unless the device is the CPU.
using DeviceBuffer = Buffer<MemoryKind::kDevice>;
// What the host writes and reads of copies to and from the device: page-locked on CUDA, where a copy from or
// to other host memory goes through the driver's own buffer and holds up the caller. Neither side may touch
// it while the other does: between a copy and the next Synchronize it is the device's.
using HostBuffer = Buffer<MemoryKind::kHost>;

// Work that was recorded once, to be run again and again on the memory that it was recorded with. Ends before
// its Device does.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
};

// Work in order. Owned by its Device and used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Backend backend() const = 0;
  virtual void* native() = 0;  // cudaStream_t; the CPU's WorkerPool*
  virtual void CopyToDevice(void* dst, const void* src, int64_t bytes) = 0;
  virtual void CopyToHost(void* dst, const void* src, int64_t bytes) = 0;
  virtual void CopyOnDevice(void* dst, const void* src, int64_t bytes) = 0;
  virtual void Zero(void* dst, int64_t bytes) = 0;
  // Waits for all work so far; the first error since the last call. On CUDA an error means that the results
  // since then are lost, and mostly that the device can do nothing more for this process.
  virtual absl::Status Synchronize() = 0;

  // What follows, up to EndCapture, is recorded and not run; it must not allocate, wait or copy to or from
  // the host. UNIMPLEMENTED where the device cannot record, and then nothing has changed.
  virtual absl::Status BeginCapture();
  virtual absl::StatusOr<std::unique_ptr<StepGraph>> EndCapture();
  virtual void Replay(const StepGraph& graph);
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Backend backend() const = 0;
  virtual const std::string& name() const = 0;  // "cpu", "cuda:0"
  virtual Stream& stream() = 0;
  // The processor, for people: "NVIDIA H200".
  virtual std::string Description() const = 0;
  // Threads of the host that do, for the engine's thread, what is not the device's work, such as sampling.
  // The CPU device computes with them too.
  virtual WorkerPool& workers() = 0;

  // RESOURCE_EXHAUSTED names the bytes asked for, the device and what is free there.
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<HostBuffer> AllocateHost(int64_t bytes) = 0;
  // What this object's buffers hold now, to the byte. What the driver adds of its own is not in it.
  virtual int64_t allocated_bytes() const = 0;
  virtual int64_t allocated_host_bytes() const = 0;
  // What there is in all for this process, whoever uses it now: the base of shares such as "25%". 0: unknown.
  virtual int64_t memory_bytes() const = 0;
  // What is in use of a memory of its own, by anybody, as the driver counts it now; 0: it has none, or the
  // driver does not tell. Any thread.
  virtual int64_t used_bytes() const { return 0; }

 private:
  template <MemoryKind>
  friend class Buffer;
  virtual void Free(MemoryKind kind, void* data, int64_t bytes) = 0;
};

// `num_threads` 0 means UsableCpus().
std::unique_ptr<Device> CreateCpuDevice(int num_threads = 0);

// GPU `index`; FAILED_PRECONDITION without a driver, without that GPU, or where it is too old. `num_threads`
// is of workers().
WEIR_CUDA_COLUMN absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int index, int num_threads = 0);

// "cpu", "cuda" (the first GPU) or "cuda:N". FAILED_PRECONDITION also where this program has no CUDA column.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const std::string& name, int num_threads = 0);

}  // namespace weir
