// What this process takes of the machine's memory, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

struct ProcessMemory {
  int64_t resident = 0;
  int64_t proportional = 0;  // 0: unknown
  // Private memory that is no page of a file, in memory or swapped out.
  int64_t anonymous = 0;  // 0: unknown
};

// Page by page from smaps_rollup, which takes the kernel about 15 ms for each GiB that is in pages of 4 KiB:
// nothing for the engine's thread or for one of gRPC's. Where that file cannot be read, what `status` says of
// the resident and the anonymous bytes, in which each thread's last few pages may be missing. `process` is a
// folder of /proc.
ProcessMemory ReadProcessMemory(const std::string& process = "/proc/self");

}  // namespace weir
