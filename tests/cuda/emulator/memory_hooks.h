// What a memory checker adds to the emulator: checker/ in the programs that have one, no_checker.cc in the
// others.
#pragma once

#include <cstdint>

namespace weir::emulator {

// False where no checker is linked in.
bool HasMemoryChecker();
// The device memory at `base` was freed: what is known of it goes.
void OnDeviceFree(uintptr_t base);

}  // namespace weir::emulator
