// The CUDA column over the emulated device, in every schedule.
#include <iterator>

#include "runtime/ops/matmul/cublas_check.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/support/test_column.h"

namespace weir {

std::unique_ptr<Device> CreateTestDevice(int) {
  auto device = CreateDevice("cuda:0");
  WEIR_CHECK(device.ok());
  return *std::move(device);
}

bool SlowKernels() { return true; }

// The memory checker sees races in any order, and what a sanitizer sees hangs little on it: one there.
// Elsewhere round robin, and one of the others by turns.
int NumSchedules() {
#if defined(WEIR_CHECKED_KERNELS) || defined(__SANITIZE_ADDRESS__)
  return 1;
#else
  return 2;
#endif
}

void ChooseSchedule(int schedule) {
  static size_t turn = 0;
  constexpr size_t kOthers = std::size(emulator::kSchedules) - 1;
  emulator::Options().schedule = emulator::kSchedules[schedule == 0 ? 0 : 1 + turn++ % kOthers];
}

// The project's own kernels, and cuBLASLt.
int NumProductForms() { return 2; }
void ChooseProductForm(int form) {
  emulator::Options().cublaslt = form == 1;
  matmul::SetMaxCublasRowsForTest(form == 1 ? 23 : 0);  // fewer than tests have, and checked in no time
}

void ExpectNoDeviceFaults() {
  for (const emulator::Report& report : emulator::Reports())
    ADD_FAILURE() << "the CUDA emulator reports (" << emulator::ReportName(report.kind) << ") "
                  << report.text;
  emulator::ClearReports();
}

}  // namespace weir
