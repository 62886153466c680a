// The CUDA column on a GPU.
#include <cstdlib>

#include "tests/support/test_column.h"

namespace weir {

std::unique_ptr<Device> CreateTestDevice(int num_threads) {
  absl::StatusOr<std::unique_ptr<Device>> device = CreateDevice("cuda:0", num_threads);
  WEIR_CHECK(device.ok());  // gpu_test_main.cc has made one before
  return *std::move(device);
}

// Under compute-sanitizer, say.
bool SlowKernels() { return std::getenv("WEIR_REDUCED_TESTS") != nullptr; }
int NumSchedules() { return 1; }
void ChooseSchedule(int) {}
void ExpectNoDeviceFaults() {}

}  // namespace weir
