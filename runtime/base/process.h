// What a process sets right before anything else runs. Call from main(), before the first thread starts.
#pragma once

#include <cstdint>

namespace weir {

// Descriptors 0, 1 and 2 that the caller closed are opened so that their use fails with EBADF: else the next
// file or socket would get their number, and be written to as if it were the output. Where a library was
// faster (gRPC opens one when it is loaded), the program starts itself once more with `argv`.
void KeepStandardDescriptors(char** argv);

// Raises the limit of open descriptors to what the system allows this process. Returns the limit now.
int64_t RaiseDescriptorLimit();

// From now on a process that gets no further thread or memory, in whatever thread, ends at once with `status`
// and one line on stderr that says so and how it is helped, instead of by a signal. `program` begins the
// line, and has to live as long as the process. Other exceptions that nobody catches abort, as ever.
void NameShortages(const char* program, int status);

}  // namespace weir
