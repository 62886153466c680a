// Segmentation faults that say something: host code in device memory, a kernel outside its memory.
#pragma once

namespace weir::emulator {

void InstallFaultHandler();
// For the calling OS thread, before it runs device code: the handler cannot use a stack that has overflowed.
void PrepareThreadForFaults();

}  // namespace weir::emulator
