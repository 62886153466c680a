// Problems of associative recall, as model/training/recall.py makes them, from a generator of our own.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::recall {

// Keys are the ids below kFirstValue but 0, values those from there on.
inline constexpr int32_t kFirstValue = 512;
inline constexpr int32_t kNumIds = 1024;
inline constexpr int kMaxPairs = 256;

// k1 v1 … kN vN, then the same keys in random order, each with its value behind it: 4 · pairs ids. Keys are
// drawn without repetition, values with. A function of its arguments alone, on every machine.
std::vector<int32_t> MakeProblem(int pairs, uint64_t seed, uint32_t index);

// Where the value behind the i-th query stands in a problem.
inline int ValuePosition(int pairs, int query) { return 2 * pairs + 2 * query + 1; }

}  // namespace weir::recall
