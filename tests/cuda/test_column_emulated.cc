// The CUDA column over the emulated device, in every schedule.
#include <iterator>

#include "tests/cuda/emulator/emulator.h"
#include "tests/support/test_column.h"

namespace weir {

std::unique_ptr<Device> CreateTestDevice(int) {
  auto device = CreateDevice("cuda:0");
  WEIR_CHECK(device.ok());
  return *std::move(device);
}

bool SlowKernels() { return true; }

// The memory checker sees races in any order, and what a sanitizer sees hangs little on it.
int NumSchedules() {
#if defined(WEIR_CHECKED_KERNELS) || defined(__SANITIZE_ADDRESS__)
  return 1;
#else
  return static_cast<int>(std::size(emulator::kSchedules));
#endif
}

void ChooseSchedule(int schedule) { emulator::Options().schedule = emulator::kSchedules[schedule]; }

void ExpectNoDeviceFaults() {
  for (const emulator::Report& report : emulator::Reports())
    ADD_FAILURE() << "the CUDA emulator reports (" << emulator::ReportName(report.kind) << ") "
                  << report.text;
  emulator::ClearReports();
}

}  // namespace weir
