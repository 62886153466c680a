#include "tests/bench/zoo/recall_score_problems.h"

#include <numeric>
#include <random>
#include <utility>

#include "runtime/base/check.h"

namespace weir::recall {
namespace {

// Even draws below `count`. The distributions of the standard library differ from one to the next.
class Draws {
 public:
  Draws(int pairs, uint64_t seed, uint32_t index) {
    std::seed_seq words = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                           static_cast<uint32_t>(pairs), index};
    random_.seed(words);
  }
  uint64_t Below(uint64_t count) {
    const uint64_t whole = UINT64_MAX - UINT64_MAX % count;  // a multiple of count
    uint64_t word = random_();
    while (word >= whole) word = random_();
    return word % count;
  }
  // The first `count` of `ids` become a random choice in random order.
  void Shuffle(std::vector<int32_t>* ids, size_t count) {
    for (size_t i = 0; i < count; ++i) std::swap((*ids)[i], (*ids)[i + Below(ids->size() - i)]);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

std::vector<int32_t> MakeProblem(int pairs, uint64_t seed, uint32_t index) {
  WEIR_CHECK(pairs >= 1 && pairs <= kMaxPairs);
  const auto count = static_cast<size_t>(pairs);
  Draws draws(pairs, seed, index);
  std::vector<int32_t> keys(kFirstValue - 1);
  std::iota(keys.begin(), keys.end(), 1);
  draws.Shuffle(&keys, count);
  std::vector<int32_t> values, order(count), ids;
  for (size_t i = 0; i < count; ++i)
    values.push_back(kFirstValue + static_cast<int32_t>(draws.Below(kNumIds - kFirstValue)));
  std::iota(order.begin(), order.end(), 0);
  draws.Shuffle(&order, count);
  for (size_t i = 0; i < count; ++i) ids.insert(ids.end(), {keys[i], values[i]});
  for (const int32_t i : order) ids.insert(ids.end(), {keys[i], values[i]});
  return ids;
}

}  // namespace weir::recall
