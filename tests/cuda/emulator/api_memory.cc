// The runtime API: memory and copies.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/device_state.h"
#include "tests/cuda/emulator/memory_hooks.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/streams.h"

namespace weir::emulator {
namespace {

struct CopyArgs {
  void* dst;
  const void* src;
  size_t bytes;
};

// The kind must say where the pointers point: on a GPU a wrong one is an error, or worse.
bool KindFits(const CopyArgs& copy, cudaMemcpyKind kind) {
  const bool to_device = DeviceHeap::Get().Contains(copy.dst),
             from_device = DeviceHeap::Get().Contains(copy.src);
  const bool fits = kind == cudaMemcpyDefault ||
                    (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                     from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
  if (!fits)
    Note(ReportKind::kApi, "cudaMemcpy of kind {} from {} memory to {} memory", static_cast<int>(kind),
         from_device ? "device" : "host", to_device ? "device" : "host");
  return fits;
}

bool RangesExist(const CopyArgs& copy) {
  DeviceHeap& heap = DeviceHeap::Get();
  return (!heap.Contains(copy.dst) || heap.CheckRange(copy.dst, copy.bytes, "cudaMemcpy's destination")) &&
         (!heap.Contains(copy.src) || heap.CheckRange(copy.src, copy.bytes, "cudaMemcpy's source"));
}

void RunCopy(const CopyArgs& copy) {
  if (DeviceState::Get().CopyFails()) return;
  const DeviceHeap::Access access;
  if (RangesExist(copy)) std::memmove(copy.dst, copy.src, copy.bytes);
}

bool IsPageable(const void* address, size_t bytes) {
  return !DeviceHeap::Get().Contains(address) && !DeviceHeap::Get().IsPinned(address, bytes);
}

// A pageable source is read at the call, as CUDA promises. A pageable destination is written late all the
// same: CUDA waits there, but the product's streams do not promise it.
cudaError_t QueueCopy(CUstream_st& stream, CopyArgs copy) {
  const bool pageable = IsPageable(copy.src, copy.bytes) || IsPageable(copy.dst, copy.bytes);
  if (stream.capture != nullptr && pageable) {
    stream.capture->invalidated = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (!IsPageable(copy.src, copy.bytes)) return Streams::Get().Enqueue(stream, [copy] { RunCopy(copy); });
  const auto* const first = static_cast<const char*>(copy.src);
  auto staged = std::make_shared<std::vector<char>>(first, first + copy.bytes);
  return Streams::Get().Enqueue(stream, [copy, staged] { RunCopy({copy.dst, staged->data(), copy.bytes}); });
}

void RunMemset(void* data, int value, size_t bytes) {
  if (DeviceState::Get().sticky_error() != cudaSuccess) return;
  const DeviceHeap::Access access;
  if (!DeviceHeap::Get().CheckRange(data, bytes, "cudaMemset")) return;
  if (value == 0)
    ZeroDeviceMemory(data, bytes);
  else
    std::memset(data, value, bytes);
}

}  // namespace
}  // namespace weir::emulator

using namespace weir::emulator;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (const cudaError_t error = Streams::Get().RefuseUnsafeCall(); error != cudaSuccess)
    return api.Return(error);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  *data = DeviceHeap::Get().Allocate(CurrentDevice(), bytes);
  return *data == nullptr ? api.Return(cudaErrorMemoryAllocation) : cudaSuccess;
}
// Freed even when the device has failed: a leak is then no report.
cudaError_t cudaFree(void* data) {
  const ApiCall api;
  if (Options().device_error != cudaSuccess) return api.Return(Options().device_error);
  if (data == nullptr) return api.Return(api.Refusal());
  if (const cudaError_t error = Streams::Get().RefuseUnsafeCall(); error != cudaSuccess)
    return api.Return(error);
  Streams::Get().DrainAll();
  if (!DeviceHeap::Get().Free(data)) {
    Note(ReportKind::kApi, "cudaFree of {}, which is no live allocation", data);
    return api.Return(cudaErrorInvalidValue);
  }
  OnDeviceFree(reinterpret_cast<uintptr_t>(data));
  return api.ReturnWaited();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  *free = DeviceHeap::Get().FreeBytes(CurrentDevice());
  *total = Options().total_memory;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  const ApiCall api;
  *data = nullptr;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (const cudaError_t error = Streams::Get().RefuseUnsafeCall(); error != cudaSuccess)
    return api.Return(error);
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(data, 64, bytes) != 0) return api.Return(cudaErrorMemoryAllocation);
  DeviceHeap::Get().AddPinned(*data, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* data) {
  const ApiCall api;
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t error = Streams::Get().RefuseUnsafeCall(); error != cudaSuccess)
    return api.Return(error);
  Streams::Get().DrainAll();
  if (!DeviceHeap::Get().RemovePinned(data)) {
    Note(ReportKind::kApi, "cudaFreeHost of {}, which is no pinned memory", data);
    return api.Return(cudaErrorInvalidValue);
  }
  std::free(data);
  return api.ReturnWaited();
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  DeviceHeap::Get().AddPinned(data, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  const ApiCall api;
  Streams::Get().DrainAll();
  if (!DeviceHeap::Get().RemovePinned(data)) return api.Return(cudaErrorHostMemoryNotRegistered);
  return api.ReturnWaited();
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  *attributes = cudaPointerAttributes{};
  uintptr_t base = 0;
  const Allocation* const allocation = DeviceHeap::Get().Find(data, &base);
  attributes->type = allocation != nullptr                 ? cudaMemoryTypeDevice
                     : DeviceHeap::Get().IsPinned(data, 1) ? cudaMemoryTypeHost
                                                           : cudaMemoryTypeUnregistered;
  attributes->device = allocation != nullptr ? allocation->device : -1;
  if (allocation != nullptr) attributes->devicePointer = const_cast<void*>(data);
  if (attributes->type == cudaMemoryTypeHost)
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (const cudaError_t error = Streams::Get().RefuseUnsafeCall(); error != cudaSuccess)
    return api.Return(error);
  if (bytes == 0) return cudaSuccess;
  if (!KindFits({dst, src, bytes}, kind)) return api.Return(cudaErrorInvalidValue);
  CUstream_st& null_stream = *Streams::Get().Find(nullptr);
  const cudaError_t error = Streams::Get().Enqueue(null_stream, [=] { RunCopy({dst, src, bytes}); });
  if (error != cudaSuccess) return api.Return(error);
  Streams::Get().Drain(null_stream);
  return api.ReturnWaited();
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!KindFits({dst, src, bytes}, kind)) return api.Return(cudaErrorInvalidValue);
  return api.Return(QueueCopy(*stream, {dst, src, bytes}));
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  return api.Return(Streams::Get().Enqueue(*stream, [=] { RunMemset(data, value, bytes); }));
}
// Does not wait for device memory, on a GPU either.
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

}  // extern "C"
