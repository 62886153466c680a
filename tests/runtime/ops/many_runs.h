// A batch as a server under load makes it: more runs than a warp or a block has threads for at once, most of
// them one token, some none, at position 0, at small and at large positions, none in the order of the slots.
#pragma once

#include <vector>

#include "tests/support/ragged.h"

namespace weir {

inline constexpr int kManyRuns = 90;

// Slots are 0 to kManyRuns - 1.
inline std::vector<RunSpec> ManyRuns() {
  std::vector<RunSpec> runs;
  for (int n = 0; n < kManyRuns; ++n) {
    const int slot = n * 37 % kManyRuns;
    switch (n % 6) {
      case 0:
        runs.push_back({0, 0, slot});
        break;
      case 1:
        runs.push_back({1, 0, slot});
        break;
      case 2:
        runs.push_back({1, 100'000'007 + n, slot});
        break;
      case 3:
        runs.push_back({2 + n % 4, n % 4 == 3 ? 0 : 7, slot});
        break;
      case 4:
        runs.push_back({1, n, slot});
        break;
      default:
        runs.push_back({0, 70, slot});
    }
  }
  runs[20].tokens = 16;
  runs[33].tokens = 17;
  runs[52].tokens = 45;
  return runs;
}

}  // namespace weir
