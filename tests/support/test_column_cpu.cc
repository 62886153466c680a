#include "tests/support/test_column.h"

namespace weir {

std::unique_ptr<Device> CreateTestDevice(int num_threads) { return CreateCpuDevice(num_threads); }
bool SlowKernels() { return false; }
int NumSchedules() { return 1; }
void ChooseSchedule(int) {}
int NumProductForms() { return 1; }
void ChooseProductForm(int) {}
void ExpectNoDeviceFaults() {}

}  // namespace weir
