// The column of the kernel tables that a test program runs: decided when the program is linked, so that one
// test source is the parity test of the CPU (test_column_cpu.cc), of the emulated CUDA device (tests/cuda)
// and, where there is one, of a GPU.
#pragma once

#include <memory>

#include "gtest/gtest.h"
#include "runtime/device/kernel.h"
#include "tests/support/args_views.h"
#include "tests/support/device_mirror.h"

namespace weir {

// `num_threads` is of the CPU's pool; 0: as many as there are.
std::unique_ptr<Device> CreateTestDevice(int num_threads = 0);
// Where kernels are slow (emulated, under a sanitizer or the memory checker) tests choose fewer or smaller
// cases.
bool SlowKernels();
// Orders in which the threads of a kernel can be made to run, and the choice of one; 1 on real hardware.
int NumSchedules();
void ChooseSchedule(int schedule);
// Ways in which the column computes products of bf16 weights that are packed from now on, and the choice of
// one; 0 at first.
int NumProductForms();
void ChooseProductForm(int form);
// Fails the running test if the device found a fault (a race, an access out of bounds, ...).
void ExpectNoDeviceFaults();

// Runs `kernel` on tensors in host memory: on the CPU directly, elsewhere on their twins in every schedule,
// which must agree bit for bit.
template <class Args>
void RunKernel(const Kernel<Args>& kernel, const Args& args, Device& device) {
  if (device.backend() == Backend::kCpu) return Launch(kernel, args, device.stream());
  ASSERT_TRUE(RequireColumn(kernel, device.backend()).ok()) << kernel.name;
  std::vector<std::vector<std::byte>> first;
  std::unique_ptr<DeviceMirror> mirror;
  for (int schedule = 0; schedule < NumSchedules(); ++schedule) {
    ChooseSchedule(schedule);
    mirror = std::make_unique<DeviceMirror>(device);
    Args twins = args;
    VisitViews(twins, [&](const TensorView& view) { mirror->Add(view); });
    mirror->Upload();
    VisitViews(twins, [&](TensorView& view) { view = mirror->Twin(view); });
    Launch(kernel, twins, device.stream());
    const absl::Status status = device.stream().Synchronize();
    ASSERT_TRUE(status.ok()) << kernel.name << ": " << status;
    auto result = mirror->Download();
    ExpectNoDeviceFaults();
    if (schedule == 0)
      first = std::move(result);
    else
      EXPECT_TRUE(result == first) << kernel.name << " depends on the order in which its threads run";
  }
  mirror->Store(first);
}

}  // namespace weir
