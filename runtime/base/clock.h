// What time passes, and what time it is: nothing that is measured may notice that somebody sets the clock.
#pragma once

#include "absl/time/time.h"

namespace weir {

// For whatever is measured: lives, limits, rates, deadlines. Runs on evenly, on an axis that was the wall
// clock's when the process first asked. Any thread.
absl::Time MonotonicNow();

// What the wall clock, as it stands now, says of a time of MonotonicNow(): for what is shown. The same for
// the same time until somebody sets the clock.
absl::Time ToWallTime(absl::Time monotonic);

// The other way, for times that clients name.
absl::Time FromWallTime(absl::Time wall);

}  // namespace weir
