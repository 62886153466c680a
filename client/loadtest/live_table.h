// LiveTable: how far a load test is, while it runs.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/loadtest/phase.h"

namespace weir {

// One thread. Text for standard error: on a terminal a table that is drawn over the last one, else a line per
// model and interval.
class LiveTable {
 public:
  explicit LiveTable(bool terminal) : terminal_(terminal) {}

  // What to write now; empty: nothing. `columns`: the terminal's, to which lines are cut, so that it does not
  // wrap them.
  std::string Draw(const std::string& phase, const std::vector<LiveRow>& rows, bool ended, absl::Time now,
                   int columns);

 private:
  const bool terminal_;
  std::string phase_;        // that is being drawn
  int lines_on_screen_ = 0;  // of it
  absl::Time next_line_ = absl::InfinitePast();
};

}  // namespace weir
