#include "runtime/base/clock.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weir {
namespace {

using Steady = std::chrono::steady_clock;

// A clock is set by more than this. Reading both clocks gives a little less or more each time.
constexpr absl::Duration kSet = absl::Milliseconds(10);
constexpr int kReads = 3;

// absl::Now() takes up to two seconds to see that the clock was set.
absl::Time WallNow() { return absl::FromChrono(std::chrono::system_clock::now()); }

// Wall clock minus MonotonicNow(), as it was when it last changed.
absl::Duration Offset() {
  static std::atomic<int64_t> kept_ns{0};
  const absl::Duration kept = absl::Nanoseconds(kept_ns.load(std::memory_order_relaxed));
  absl::Duration offset;
  // A thread that was held up between its reads reads again.
  for (int i = 0; i < kReads; ++i) {
    const absl::Time before = MonotonicNow();
    offset = WallNow() - before;
    if (MonotonicNow() - before < kSet / 2) break;
  }
  if (absl::AbsDuration(offset - kept) < kSet) return kept;
  kept_ns.store(absl::ToInt64Nanoseconds(offset), std::memory_order_relaxed);
  return offset;
}

}  // namespace

absl::Time MonotonicNow() {
  static const Steady::time_point steady = Steady::now();
  static const absl::Time wall = WallNow();
  return wall + absl::FromChrono(Steady::now() - steady);
}

absl::Time ToWallTime(absl::Time monotonic) { return monotonic + Offset(); }

absl::Time FromWallTime(absl::Time wall) { return MonotonicNow() + (wall - WallNow()); }

}  // namespace weir
