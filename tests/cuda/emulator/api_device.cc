// The runtime API: devices, errors, kernels' attributes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/device_state.h"
#include "tests/cuda/emulator/grid.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/shared_memory.h"
#include "tests/cuda/emulator/streams.h"

namespace weir::emulator {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

constexpr int kThreadsPerMultiprocessor = 2048;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const ErrorText& TextOf(cudaError_t error) {
  static constexpr ErrorText kOther{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  const auto* const it = std::find_if(std::begin(kErrors), std::end(kErrors),
                                      [error](const ErrorText& e) { return e.error == error; });
  return it == std::end(kErrors) ? kOther : *it;
}

// False for an attribute that is not emulated.
bool Attribute(cudaDeviceAttr attribute, int* value) {
  const EmulatorOptions& options = Options();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = options.compute_capability / 10;
      return true;
    case cudaDevAttrComputeCapabilityMinor:
      *value = options.compute_capability % 10;
      return true;
    case cudaDevAttrMultiProcessorCount:
      *value = options.multiprocessors;
      return true;
    case cudaDevAttrWarpSize:
      *value = 32;
      return true;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kThreadsPerMultiprocessor;
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(kStaticSharedLimit);
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(SharedMemoryLimit());
      return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(SharedMemoryLimit() + 1024);
      return true;
    case cudaDevAttrL2CacheSize:
      *value = 32 << 20;
      return true;
    case cudaDevAttrMaxGridDimX:
      *value = 0x7fffffff;
      return true;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = 65535;
      return true;
    default:
      return false;
  }
}

bool IsDevice(int device) { return device >= 0 && device < std::min(Options().device_count, kMaxDevices); }

}  // namespace

DeviceState& DeviceState::Get() {
  static DeviceState* const state = new DeviceState;
  return *state;
}

void DeviceState::Recover() {
  sticky_error_ = cudaSuccess;
  kernel_fault_ = copy_fault_ = PlannedFault{};
}

bool DeviceState::Takes(PlannedFault& fault) {
  if (fault.in > 0 && --fault.in == 0) Fail(fault.error);
  return sticky_error_ != cudaSuccess;
}

std::mutex& ApiCall::mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
cudaError_t ApiCall::Refusal() const {
  if (Options().device_error != cudaSuccess) return Options().device_error;
  if (Options().device_count == 0) return cudaErrorNoDevice;
  return DeviceState::Get().sticky_error();
}
cudaError_t ApiCall::Return(cudaError_t error) const {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}
cudaError_t ApiCall::ReturnWaited() const {
  AbortIfReported();
  return Return(DeviceState::Get().sticky_error());
}

int CurrentDevice() { return current_device; }
cudaError_t TakeLastError(bool forget) {
  const cudaError_t sticky = DeviceState::Get().sticky_error();
  const cudaError_t error = forget ? std::exchange(last_error, cudaSuccess) : last_error;
  return sticky != cudaSuccess ? sticky : error;
}

void SetStickyError(cudaError_t error) { DeviceState::Get().Fail(error); }

void FailKernel(int n, cudaError_t error) {
  const ApiCall api;
  DeviceState::Get().PlanKernelFault(n, error);
}
void FailCopy(int n, cudaError_t error) {
  const ApiCall api;
  DeviceState::Get().PlanCopyFault(n, error);
}
void ResetDevices() {
  const ApiCall api;
  Streams::Get().DropAll();
  DeviceState::Get().Recover();
  last_error = cudaSuccess;
}
size_t LiveDeviceBytes() {
  const ApiCall api;
  return DeviceHeap::Get().LiveBytes();
}
void ReportLeaks() {
  const ApiCall api;
  DeviceHeap::Get().ReportLive();
}

}  // namespace weir::emulator

using namespace weir::emulator;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaGetLastError() {
  const ApiCall api;
  return TakeLastError(true);
}
cudaError_t cudaPeekAtLastError() {
  const ApiCall api;
  return TakeLastError(false);
}
const char* cudaGetErrorString(cudaError_t error) { return TextOf(error).text; }
const char* cudaGetErrorName(cudaError_t error) { return TextOf(error).name; }

cudaError_t cudaGetDeviceCount(int* count) {
  const ApiCall api;
  *count = 0;
  if (Options().device_error != cudaSuccess) return api.Return(Options().device_error);
  if (Options().device_count == 0) return api.Return(cudaErrorNoDevice);
  *count = std::min(Options().device_count, kMaxDevices);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const ApiCall api;
  if (Options().device_error != cudaSuccess) return api.Return(Options().device_error);
  if (!IsDevice(device)) return api.Return(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  const ApiCall api;
  if (Options().device_error != cudaSuccess) return api.Return(Options().device_error);
  *device = CurrentDevice();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const ApiCall api;
  if (Options().device_error != cudaSuccess) return api.Return(Options().device_error);
  if (!IsDevice(device)) return api.Return(cudaErrorInvalidDevice);
  if (Attribute(attribute, value)) return cudaSuccess;
  Note(ReportKind::kApi, "cudaDeviceGetAttribute: attribute {} is not emulated", static_cast<int>(attribute));
  return api.Return(cudaErrorNotSupported);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const ApiCall api;
  if (Options().device_error != cudaSuccess) return api.Return(Options().device_error);
  if (!IsDevice(device)) return api.Return(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::snprintf(properties->name, sizeof(properties->name), "Emulated GPU");
  properties->totalGlobalMem = Options().total_memory;
  properties->major = Options().compute_capability / 10;
  properties->minor = Options().compute_capability % 10;
  properties->warpSize = 32;
  properties->multiProcessorCount = Options().multiprocessors;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  properties->sharedMemPerBlock = kStaticSharedLimit;
  properties->sharedMemPerBlockOptin = SharedMemoryLimit();
  properties->sharedMemPerMultiprocessor = SharedMemoryLimit() + 1024;
  properties->l2CacheSize = 32 << 20;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = Options().device_error == cudaSuccess ? CUDART_VERSION : Options().driver_version;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return api.Return(cudaErrorInvalidValue);
  if (value < 0 || static_cast<size_t>(value) > SharedMemoryLimit()) return api.Return(cudaErrorInvalidValue);
  SetDynamicSharedLimit(kernel, static_cast<size_t>(value));
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(DynamicSharedLimit(kernel));
  attributes->binaryVersion = attributes->ptxVersion = Options().compute_capability;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int block_size,
                                                                   size_t shared_bytes, unsigned) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (block_size <= 0) return api.Return(cudaErrorInvalidValue);
  const size_t by_shared = (SharedMemoryLimit() + 1024) / (shared_bytes + 1024);
  *blocks = block_size > 1024
                ? 0
                : static_cast<int>(std::min<size_t>(kThreadsPerMultiprocessor / block_size, by_shared));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block_size, shared_bytes, 0);
}

}  // extern "C"
