#include "runtime/device/cpu_device.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/cpu_info.h"
#include "runtime/base/memory_limit.h"

namespace weir {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kMapFrom = 2 << 20;  // bytes

class CpuStream final : public Stream {
 public:
  explicit CpuStream(int num_threads) : pool_(num_threads) {}
  const WorkerPool& pool() const { return pool_; }
  Backend backend() const override { return Backend::kCpu; }
  void* native() override { return &pool_; }
  void CopyToDevice(void* dst, const void* src, int64_t bytes) override { Copy(dst, src, bytes); }
  void CopyToHost(void* dst, const void* src, int64_t bytes) override { Copy(dst, src, bytes); }
  void CopyOnDevice(void* dst, const void* src, int64_t bytes) override { Copy(dst, src, bytes); }
  void Zero(void* dst, int64_t bytes) override { std::memset(dst, 0, static_cast<size_t>(bytes)); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  WorkerPool& pool() { return pool_; }

 private:
  static void Copy(void* dst, const void* src, int64_t bytes) {
    if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  WorkerPool pool_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : stream_(num_threads) {}
  Backend backend() const override { return Backend::kCpu; }
  const std::string& name() const override { return name_; }
  Stream& stream() override { return stream_; }
  std::string Description() const override {
    return fmt::format("{} compute threads", stream_.pool().num_threads());
  }
  WorkerPool& workers() override { return stream_.pool(); }
  int64_t allocated_bytes() const override { return allocated_.load(std::memory_order_relaxed); }
  int64_t allocated_host_bytes() const override { return allocated_host_.load(std::memory_order_relaxed); }
  int64_t memory_bytes() const override { return MemoryLimit(); }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    return AllocateAs<MemoryKind::kDevice>(bytes, &allocated_);
  }
  absl::StatusOr<HostBuffer> AllocateHost(int64_t bytes) override {
    return AllocateAs<MemoryKind::kHost>(bytes, &allocated_host_);
  }

 private:
  template <MemoryKind kKind>
  absl::StatusOr<Buffer<kKind>> AllocateAs(int64_t bytes, std::atomic<int64_t>* counter) {
    void* data = nullptr;
    if (bytes >= kMapFrom)
      data = Map(bytes);
    else if (bytes > 0)
      data = std::aligned_alloc(kAlignment, static_cast<size_t>(RoundUp(bytes, kAlignment)));
    if (bytes > 0 && data == nullptr)
      return absl::ResourceExhaustedError(fmt::format("cannot allocate {} bytes of host memory", bytes));
    if (bytes > 0 && bytes < kMapFrom) std::memset(data, 0, static_cast<size_t>(bytes));
    counter->fetch_add(bytes, std::memory_order_relaxed);
    return Buffer<kKind>(this, data, bytes);
  }

  static int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

  // Pages of the kernel are zero and cost nothing until they are touched, so a pool of gigabytes is there at
  // once. Large ones, because weights are read from end to end in every step.
  static void* Map(int64_t bytes) {
    void* data =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return data;
  }

  void Free(MemoryKind kind, void* data, int64_t bytes) override {
    if (bytes >= kMapFrom)
      munmap(data, static_cast<size_t>(bytes));
    else
      std::free(data);
    (kind == MemoryKind::kDevice ? allocated_ : allocated_host_).fetch_sub(bytes, std::memory_order_relaxed);
  }

  const std::string name_ = "cpu";
  CpuStream stream_;
  std::atomic<int64_t> allocated_{0}, allocated_host_{0};
};

}  // namespace

std::unique_ptr<Device> CreateCpuDevice(int num_threads) {
  return std::make_unique<CpuDevice>(num_threads > 0 ? num_threads : UsableCpus());
}

}  // namespace weir
