#include "client/loadtest/live_table.h"

#include <algorithm>
#include <utility>

#include "client/loadtest/text_table.h"
#include "fmt/format.h"

namespace weir {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(5);

std::vector<std::string> RowCells(const LiveRow& row) {
  return {row.what,
          row.progress,
          fmt::format("{}", row.running),
          fmt::format("{}", row.completed),
          fmt::format("{}", row.failed),
          fmt::format("{}", row.tokens),
          ShortNumber(row.tokens_per_second),
          ShortNumber(row.ttft_ms),
          ShortNumber(row.itl_ms)};
}

std::string CutLines(const std::string& text, int columns) {
  std::string cut;
  int column = 0;
  for (const char c : text) {
    column = c == '\n' ? 0 : column + 1;
    if (c == '\n' || column < columns) cut += c;
  }
  return cut;
}

}  // namespace

std::string LiveTable::Draw(const std::string& phase, const std::vector<LiveRow>& rows, bool ended,
                            absl::Time now, int columns) {
  if (!terminal_) {
    if (!ended && phase == phase_ && now < next_line_) return "";
    if (phase != phase_) next_line_ = now;
    phase_ = phase;
    next_line_ += kLineInterval;
    std::string text;
    for (const LiveRow& row : rows)
      text += fmt::format(
          "{}: {}: {}; {} running, {} completed, {} failed, {} tokens, {} tok/s, TTFT {} ms, ITL {} ms{}\n",
          phase, row.what, row.progress, row.running, row.completed, row.failed, row.tokens,
          ShortNumber(row.tokens_per_second), ShortNumber(row.ttft_ms), ShortNumber(row.itl_ms),
          ended ? "; done" : "");
    return text;
  }
  std::vector<std::vector<std::string>> table = {
      {phase, "TIME", "RUNNING", "DONE", "FAILED", "TOKENS", "TOK/S", "TTFT ms", "ITL ms"}};
  for (const LiveRow& row : rows) table.push_back(RowCells(row));
  // Up to its first line, and clear all from there.
  std::string text = lines_on_screen_ > 0 ? fmt::format("\x1b[{}A\x1b[J", lines_on_screen_) : "";
  text += CutLines(TextTable(table), std::max(columns, 20));
  lines_on_screen_ = ended ? 0 : static_cast<int>(table.size());
  phase_ = phase;
  return text;
}

}  // namespace weir
