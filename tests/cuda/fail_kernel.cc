// Linked into weir-server-emulated: EMULATOR_FAIL_KERNEL=N makes the N-th kernel of the process fail as an
// illegal address does.
#include <cstdlib>

#include "tests/cuda/emulator/emulator.h"

namespace {

[[maybe_unused]] const bool planned = [] {
  if (const char* n = std::getenv("EMULATOR_FAIL_KERNEL"))
    weir::emulator::FailKernel(std::atoi(n), cudaErrorIllegalAddress);
  return true;
}();

}  // namespace
