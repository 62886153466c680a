// What this process takes of the machine, as the kernel counts it.
#pragma once

#include <cstdint>

namespace weir {

struct ProcessUse {
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  double cpu_seconds = 0;
  int64_t open_descriptors = 0;
  int64_t max_descriptors = 0;
};

// Parts that cannot be read are 0.
ProcessUse ReadProcessUse();

}  // namespace weir
