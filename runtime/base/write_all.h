// Unbuffered output to a descriptor.
#pragma once

#include <string_view>

namespace weir {

// Returns 0, or the errno of the write that failed. SIGPIPE must be ignored.
int WriteAll(int fd, std::string_view text);

}  // namespace weir
