#include "client/loadtest/live_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "client/loadtest/text_table.h"
#include "fmt/format.h"

namespace weir {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(5);
constexpr size_t kBetween = 2;                     // spaces, of TextTable's columns
constexpr int kLeastColumns = 20, kLeastRows = 3;  // less is drawn as if it were so much
// To the line's start, since the terminal shows ^C where the cursor is; up; clear all from there.
constexpr const char* kOverTheLast = "\r\x1b[{}A\x1b[J";

using LiveCells = std::vector<std::string>;

// Columns by their place in the table.
enum LiveColumn { kWhat, kTime, kRunning, kDone, kFailed, kTokens, kRate, kTtft, kItl };

// What is done for a narrow terminal, in this order: a column is left out or, where there is a width, cut to
// it.
struct LiveStep {
  LiveColumn column;
  size_t width = 0;
};
constexpr LiveStep kNarrow[] = {{kTokens}, {kRunning}, {kWhat, 18}, {kTtft},   {kItl},
                                {kDone},   {kRate},    {kFailed},   {kWhat, 8}};

LiveCells RowCells(const LiveRow& row) {
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

// A name comes from the server: no control character of it may reach the terminal, and a byte is a column.
std::string Printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text;
}

// A phase that is no traffic has no columns.
bool SaysItItself(const std::vector<LiveRow>& rows) { return rows.size() == 1 && !rows[0].line.empty(); }

std::string Cut(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  return text.substr(0, width - 2) + "..";
}

// The cursor stays behind the last column, which some terminals take for the next line.
bool Fits(const std::vector<LiveCells>& table, size_t columns) {
  const std::string text = TextTable(table);
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    if (end - at >= columns) return false;
  }
  return true;
}

// Takes steps until the table fits, `steps` of them at least, and at last cuts what it says of the time.
std::vector<LiveCells> Fitted(std::vector<LiveCells> table, size_t columns, size_t* steps) {
  std::vector<int> places = {kWhat, kTime, kRunning, kDone, kFailed, kTokens, kRate, kTtft, kItl};
  for (size_t i = 0; i < std::size(kNarrow); ++i) {
    if (i >= *steps && Fits(table, columns)) return table;
    *steps = std::max(*steps, i + 1);
    const auto place = std::find(places.begin(), places.end(), kNarrow[i].column) - places.begin();
    for (LiveCells& row : table) {
      if (kNarrow[i].column == kWhat)
        row[0] = Cut(row[0], kNarrow[i].width);
      else
        row.erase(row.begin() + place);
    }
    if (kNarrow[i].column != kWhat) places.erase(places.begin() + place);
  }
  const size_t name = kNarrow[std::size(kNarrow) - 1].width;
  for (LiveCells& row : table) row[1] = Cut(row[1], columns - 1 - name - kBetween);
  return table;
}

}  // namespace

std::string LiveTable::Redraw(const std::string& phase, const std::vector<LiveRow>& rows, bool ended,
                              const TerminalSize& size) {
  const auto columns = static_cast<size_t>(std::max(size.columns, kLeastColumns));
  if (SaysItItself(rows)) {
    const std::string over = lines_on_screen_ > 0 ? fmt::format(kOverTheLast, lines_on_screen_) : "";
    lines_on_screen_ = ended ? 0 : 1;
    phase_ = phase;
    return over + Cut(Printable(fmt::format("{}: {}", phase, rows[0].line)), columns - 1) + "\n";
  }
  // A line each for the phase, for what the columns are, and for the cursor.
  const auto most = static_cast<size_t>(std::max(size.rows, kLeastRows + 1) - kLeastRows);
  const size_t shown = rows.size() <= most ? rows.size() : most - 1;
  std::vector<LiveCells> table = {
      {"", "TIME", "RUNNING", "DONE", "FAILED", "TOKENS", "TOK/S", "TTFT ms", "ITL ms"}};
  for (size_t i = 0; i < shown; ++i) {
    LiveRow row = rows[i];
    row.what = Printable(row.what);
    table.push_back(RowCells(row));
  }
  if (phase != phase_ || size.columns != columns_) narrowed_ = 0;
  phase_ = phase;
  columns_ = size.columns;
  std::string text = lines_on_screen_ > 0 ? fmt::format(kOverTheLast, lines_on_screen_) : "";
  text += Cut(Printable(phase), columns - 1) + "\n" + TextTable(Fitted(table, columns, &narrowed_));
  if (shown < rows.size()) text += fmt::format("{} more\n", rows.size() - shown);
  lines_on_screen_ = ended ? 0 : static_cast<int>(2 + shown + (shown < rows.size() ? 1 : 0));
  return text;
}

std::string LiveTable::Draw(const std::string& phase, const std::vector<LiveRow>& rows, bool ended,
                            absl::Time now, const TerminalSize& size) {
  if (terminal_) return Redraw(phase, rows, ended, size);
  if (!ended && phase == phase_ && now < next_line_) return "";
  if (phase != phase_) next_line_ = now;
  phase_ = phase;
  next_line_ += kLineInterval;
  if (SaysItItself(rows))
    return Printable(fmt::format("{}: {}{}", phase, rows[0].line, ended ? "; done" : "")) + "\n";
  std::string text;
  for (const LiveRow& row : rows)
    text += fmt::format(
        "{}: {}: {}; {} running, {} completed, {} failed, {} tokens, {} tok/s, TTFT {} ms, ITL {} ms{}\n",
        Printable(phase), Printable(row.what), row.progress, row.running, row.completed, row.failed,
        row.tokens, ShortNumber(row.tokens_per_second), ShortNumber(row.ttft_ms), ShortNumber(row.itl_ms),
        ended ? "; done" : "");
  return text;
}

}  // namespace weir
