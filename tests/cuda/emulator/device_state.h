// What the devices as a whole remember, and the frame of every API function.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "tests/cuda/emulator/emulator.h"

namespace weir::emulator {

// Emulated devices fail together: one sticky error for all.
class DeviceState {
 public:
  static DeviceState& Get();

  cudaError_t sticky_error() const { return sticky_error_; }
  void Fail(cudaError_t error) {
    if (sticky_error_ == cudaSuccess) sticky_error_ = error;
  }
  void Recover();

  void PlanKernelFault(int n, cudaError_t error) { kernel_fault_ = {n, error}; }
  void PlanCopyFault(int n, cudaError_t error) { copy_fault_ = {n, error}; }
  // Before a kernel or a copy runs: true when it must not, since it was to fail or something before it did.
  bool KernelFails() { return Takes(kernel_fault_); }
  bool CopyFails() { return Takes(copy_fault_); }

 private:
  struct PlannedFault {
    int in = 0;  // operations until it happens; 0: none is planned
    cudaError_t error = cudaSuccess;
  };
  bool Takes(PlannedFault& fault);

  cudaError_t sticky_error_ = cudaSuccess;
  PlannedFault kernel_fault_, copy_fault_;
};

// One at a time in the whole process, whatever the threads. Device code runs inside the calls that wait for
// it.
class ApiCall {
 public:
  ApiCall() : lock_(mutex()) {}

  // Why nothing can be asked of the device: no driver, or its sticky error. cudaSuccess when it can.
  cudaError_t Refusal() const;
  // Remembers an error as the thread's last.
  cudaError_t Return(cudaError_t error) const;
  // The same after waiting, where the sticky error shows and reports that nobody collects abort.
  cudaError_t ReturnWaited() const;

 private:
  static std::mutex& mutex();
  const std::lock_guard<std::mutex> lock_;
};

// Of the calling thread.
int CurrentDevice();
// Gives the last error and forgets it, unless it is sticky.
cudaError_t TakeLastError(bool forget);

}  // namespace weir::emulator
