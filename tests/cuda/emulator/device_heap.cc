#include "tests/cuda/emulator/device_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/emulator/fault_handler.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/sanitizer.h"

namespace weir::emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAddressSpace = size_t{1} << 40;
constexpr unsigned char kGuard = 0xc5;
// Of larger allocations only the two ends are filled with NaN, so that a pool of most of a GPU's memory costs
// none of the host's.
constexpr size_t kFilledBytes = size_t{32} << 20;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

DeviceHeap& DeviceHeap::Get() {
  static DeviceHeap* const heap = new DeviceHeap;
  return *heap;
}

DeviceHeap::DeviceHeap() {
  void* const memory =
      mmap(nullptr, kAddressSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fmt::print(stderr, "CUDA emulator: no address space for device memory\n");
    std::abort();
  }
  madvise(memory, kAddressSpace, MADV_DONTDUMP);
  first_ = static_cast<char*>(memory);
  end_ = first_ + kAddressSpace;
  InstallFaultHandler();
}

void DeviceHeap::Protect(uintptr_t base, size_t bytes, int protection) {
  mprotect(reinterpret_cast<void*>(base), RoundUp(bytes, kPage), protection);
}

void DeviceHeap::SetAccess(int change) {
  const bool was = accesses_ > 0;
  accesses_ += change;
  const bool is = accesses_ > 0;
  if (was == is) return;
  for (const auto& [base, bytes] : live_) Protect(base, bytes, is ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void DeviceHeap::Fill(char* data, size_t bytes) {
  const size_t head = std::min(bytes, kFilledBytes);
  std::memset(data, 0xff, head);
  const size_t tail = std::min(bytes - head, kFilledBytes);
  std::memset(data + bytes - tail, 0xff, tail);
  const size_t room = RoundUp(bytes, kPage) - bytes;
  std::memset(data + bytes, kGuard, room);
  Poison(data + bytes, room);
}

void* DeviceHeap::Allocate(int device, size_t bytes) {
  const size_t charge = RoundUp(bytes, kAllocationUnit);
  const size_t space = RoundUp(bytes, kPage) + kPage;  // a page in front that nobody may touch
  if (bytes > FreeBytes(device) || charge > FreeBytes(device) || used_ + space + kPage > kAddressSpace)
    return nullptr;
  char* const data = first_ + used_ + kPage;
  used_ += space;
  const auto base = reinterpret_cast<uintptr_t>(data);
  Protect(base, bytes, PROT_READ | PROT_WRITE);
  Fill(data, bytes);
  if (accesses_ == 0) Protect(base, bytes, PROT_NONE);
  allocations_[base] = {bytes, device, false};
  live_[base] = bytes;
  charged_[static_cast<size_t>(device)] += charge;
  live_bytes_ += bytes;
  return data;
}

bool DeviceHeap::Free(void* data) {
  const auto base = reinterpret_cast<uintptr_t>(data);
  const auto it = allocations_.find(base);
  if (it == allocations_.end() || it->second.freed) return false;
  Allocation& allocation = it->second;
  allocation.freed = true;
  live_.erase(base);
  charged_[static_cast<size_t>(allocation.device)] -= RoundUp(allocation.bytes, kAllocationUnit);
  live_bytes_ -= allocation.bytes;
  madvise(data, RoundUp(allocation.bytes, kPage), MADV_DONTNEED);
  Protect(base, allocation.bytes, PROT_NONE);
  return true;
}

size_t DeviceHeap::FreeBytes(int device) const {
  const size_t total = Options().total_memory, used = charged_[static_cast<size_t>(device)];
  return total > used ? total - used : 0;
}

void DeviceHeap::ReportLive() const {
  for (const auto& [base, bytes] : live_)
    Note(ReportKind::kLeak, "{} bytes of device memory at {:#x} are not freed", bytes, base);
}

const Allocation* DeviceHeap::Find(const void* address, uintptr_t* base) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto it = allocations_.upper_bound(at);
  if (it == allocations_.begin()) return nullptr;
  --it;
  *base = it->first;
  return at < it->first + std::max<size_t>(it->second.bytes, 1) ? &it->second : nullptr;
}

bool DeviceHeap::CheckRange(const void* address, size_t bytes, const char* what) {
  uintptr_t base = 0;
  const Allocation* const allocation = Find(address, &base);
  if (allocation != nullptr && !allocation->freed &&
      reinterpret_cast<uintptr_t>(address) + bytes <= base + allocation->bytes)
    return true;
  Note(ReportKind::kGlobalBounds, "{}: {} bytes at {} are not in a live device allocation", what, bytes,
       address);
  SetStickyError(cudaErrorIllegalAddress);
  return false;
}

void DeviceHeap::CheckGuards() {
  if constexpr (kAddressSanitizer) return;  // the ends are poisoned, so the write itself was reported
  for (const auto& [base, bytes] : live_) {
    auto* const data = reinterpret_cast<unsigned char*>(base);
    const size_t end = RoundUp(bytes, kPage);
    for (size_t i = bytes; i < end; ++i) {
      if (data[i] == kGuard) continue;
      Note(ReportKind::kGlobalBounds, "a kernel wrote {} bytes past the end of {} bytes of device memory",
           i - bytes, bytes);
      SetStickyError(cudaErrorIllegalAddress);
      std::memset(data + bytes, kGuard, end - bytes);
      break;
    }
  }
}

bool DeviceHeap::IsPinned(const void* address, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto it = pinned_.upper_bound(at);
  if (it == pinned_.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}

void ZeroDeviceMemory(void* data, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first_page = RoundUp(first, kPage), last_page = (first + bytes) / kPage * kPage;
  if (bytes < kFilledBytes || last_page <= first_page) {
    std::memset(data, 0, bytes);
    return;
  }
  std::memset(data, 0, first_page - first);
  madvise(reinterpret_cast<void*>(first_page), last_page - first_page, MADV_DONTNEED);
  std::memset(reinterpret_cast<void*>(last_page), 0, first + bytes - last_page);
}

}  // namespace weir::emulator
