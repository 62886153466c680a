// From addresses of this program to names and lines.
#pragma once

#include <cstring>
#include <string>

#include "tests/cuda/emulator/device_interface.h"

namespace weir::emulator {

// "Kernel<16>", without namespace and parameters. Slow the first time: binutils' addr2line is asked.
std::string FunctionAt(const void* address);
// "file.cu:12" of the call that returns to `return_address`.
std::string LineOfCall(const void* return_address);
// Of the instruction at `address`.
std::string LineAt(const void* address);

inline bool SameSite(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

}  // namespace weir::emulator
