// What a process sets right before anything else runs. Call from main(), before the first thread starts.
#pragma once

#include <cstdint>

namespace weir {

// Descriptors 0, 1 and 2 that the caller closed are opened so that their use fails: else the next file or
// socket would get their number, and be written to as if it were the output.
void KeepStandardDescriptors();

// Raises the limit of open descriptors to what the system allows this process. Returns the limit now.
int64_t RaiseDescriptorLimit();

}  // namespace weir
