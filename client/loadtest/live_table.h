// LiveTable: how far a load test is, while it runs.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/loadtest/phase.h"

namespace weir {

// Of one that does not say: wide enough for every column, high enough for many a model.
struct TerminalSize {
  int columns = 120;
  int rows = 24;
};

// One thread. Text for standard error: on a terminal a table that is drawn over the last one, else a line per
// model and interval.
class LiveTable {
 public:
  explicit LiveTable(bool terminal) : terminal_(terminal) {}

  // What to write now; empty: nothing. Nothing is wider or higher than the terminal, which would wrap or
  // scroll what is to be drawn over: columns are left out, those that say least first, then rows.
  std::string Draw(const std::string& phase, const std::vector<LiveRow>& rows, bool ended, absl::Time now,
                   const TerminalSize& size);

 private:
  std::string Redraw(const std::string& phase, const std::vector<LiveRow>& rows, bool ended,
                     const TerminalSize& size);

  const bool terminal_;
  std::string phase_;        // that is being drawn
  int lines_on_screen_ = 0;  // of it
  // So many steps the phase's table was narrowed by, for good, lest columns come and go with the width of a
  // number.
  size_t narrowed_ = 0;
  int columns_ = 0;
  absl::Time next_line_ = absl::InfinitePast();
};

}  // namespace weir
