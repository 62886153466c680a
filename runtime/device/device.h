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

// Device memory, 64-byte aligned, zeroed when made. Freed by its owner's destructor; outlived by its Device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device* device, void* data, int64_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
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
  // Waits for all work so far; the first error since the last call.
  virtual absl::Status Synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Backend backend() const = 0;
  virtual const std::string& name() const = 0;  // "cpu", "cuda:0"
  virtual Stream& stream() = 0;
  // RESOURCE_EXHAUSTED names the bytes asked for.
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;
  virtual int64_t allocated_bytes() const = 0;

 private:
  friend class DeviceBuffer;
  virtual void Free(void* data, int64_t bytes) = 0;
};

// `num_threads` 0 means UsableCpus().
std::unique_ptr<Device> CreateCpuDevice(int num_threads = 0);

// GPU `index`; FAILED_PRECONDITION without a driver or without that GPU.
WEIR_CUDA_COLUMN absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int index);

// "cpu", "cuda" (the first GPU) or "cuda:N". FAILED_PRECONDITION also where this program has no CUDA column.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const std::string& name, int num_threads = 0);

}  // namespace weir
