// The laws of the linear recurrence for the CPU's other way to do whole chunks.
#include "tests/runtime/ops/linear_recurrence_laws.h"

namespace weir {
namespace {

INSTANTIATE_TEST_SUITE_P(CpuProducts, LinearRecurrenceLaws, testing::Values(RecurrenceForm::kCpuProducts),
                         [](const auto&) { return "Cpu"; });

}  // namespace
}  // namespace weir
