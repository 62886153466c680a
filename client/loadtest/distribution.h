// Distribution: what the report says of many values.
#pragma once

#include <cstdint>

namespace weir {

// Of values in one unit: ms, or tokens/s. All 0 where there are none.
struct Distribution {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
};

}  // namespace weir
