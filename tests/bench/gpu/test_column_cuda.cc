// The CUDA column on a GPU.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fmt/format.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr int kNoGpu = 2;

}  // namespace

std::unique_ptr<Device> CreateTestDevice(int num_threads) {
  absl::StatusOr<std::unique_ptr<Device>> device = CreateDevice("cuda:0", num_threads);
  if (device.ok()) return *std::move(device);
  // Also before main, as lists of cases ask the device.
  fmt::print(stderr, "weir-gpu-test: {}\n", std::string(device.status().message()));
  std::exit(kNoGpu);
}

// Under compute-sanitizer, say.
bool SlowKernels() { return std::getenv("WEIR_REDUCED_TESTS") != nullptr; }
int NumSchedules() { return 1; }
void ChooseSchedule(int) {}
// cuBLASLt where the loader finds it: whoever runs the tests decides.
int NumProductForms() { return 1; }
void ChooseProductForm(int) {}
void ExpectNoDeviceFaults() {}

}  // namespace weir
