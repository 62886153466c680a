// FailingDevice: the CPU, until a test says that it fails: as a GPU does that the driver gives up, or that
// has less memory than it is asked for.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <string>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/device/device.h"

namespace weir::testing {

class FailingDevice final : public Device {
 public:
  // `backend`: what it says that it is.
  explicit FailingDevice(int64_t memory = std::numeric_limits<int64_t>::max(),
                         Backend backend = Backend::kCpu)
      : cpu_(CreateCpuDevice(1)), stream_(cpu_->stream()), memory_(memory), backend_(backend) {}

  // The n-th Synchronize from now on (1: the next) fails, and so do all after it. Any thread.
  void FailAt(int n) { stream_.countdown.store(n); }

  Backend backend() const override { return backend_; }
  const std::string& name() const override { return name_; }
  Stream& stream() override { return stream_; }
  std::string Description() const override { return "a device that fails"; }
  WorkerPool& workers() override { return cpu_->workers(); }
  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    if (bytes > memory_ - cpu_->allocated_bytes())
      return absl::ResourceExhaustedError(fmt::format("cannot allocate {} bytes on {}", bytes, name_));
    return cpu_->Allocate(bytes);
  }
  absl::StatusOr<HostBuffer> AllocateHost(int64_t bytes) override { return cpu_->AllocateHost(bytes); }
  int64_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  int64_t allocated_host_bytes() const override { return cpu_->allocated_host_bytes(); }
  int64_t memory_bytes() const override { return memory_; }

 private:
  class FailingStream final : public Stream {
   public:
    explicit FailingStream(Stream& cpu) : cpu_(cpu) {}
    Backend backend() const override { return cpu_.backend(); }
    void* native() override { return cpu_.native(); }
    void CopyToDevice(void* dst, const void* src, int64_t bytes) override {
      cpu_.CopyToDevice(dst, src, bytes);
    }
    void CopyToHost(void* dst, const void* src, int64_t bytes) override { cpu_.CopyToHost(dst, src, bytes); }
    void CopyOnDevice(void* dst, const void* src, int64_t bytes) override {
      cpu_.CopyOnDevice(dst, src, bytes);
    }
    void Zero(void* dst, int64_t bytes) override { cpu_.Zero(dst, bytes); }
    absl::Status Synchronize() override {
      if (countdown.load() == 0) return cpu_.Synchronize();
      if (countdown.load() > 1 && countdown.fetch_sub(1) > 1) return cpu_.Synchronize();
      return absl::InternalError("fail:0: it was told to fail");
    }
    std::atomic<int> countdown{0};  // 0: none planned

   private:
    Stream& cpu_;
  };

  void Free(MemoryKind, void*, int64_t) override { WEIR_CHECK(false); }  // its buffers are the CPU's

  const std::string name_ = "fail:0";
  const std::unique_ptr<Device> cpu_;
  FailingStream stream_;
  const int64_t memory_;
  const Backend backend_;
};

}  // namespace weir::testing
