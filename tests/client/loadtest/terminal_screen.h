// TerminalScreen: what a terminal shows of what is written to it.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace weir::testing {

// Wraps at its width and scrolls at its height; knows the sequences that a live table may use, and notes any
// other.
class TerminalScreen {
 public:
  TerminalScreen(int columns, int rows)
      : columns_(static_cast<size_t>(columns)), rows_(static_cast<size_t>(rows)), lines_(1) {}

  void Feed(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\x1b')
        i = Escape(text, i);
      else if (text[i] == '\r')
        column_ = 0;
      else if (text[i] == '\n')
        NextLine();
      else
        Put(text[i]);
    }
  }

  // All lines ever shown, those that scrolled away first; none ends with a space.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = lines_;
    for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
  }
  int wrapped() const { return wrapped_; }
  const std::string& unknown() const { return unknown_; }  // sequences, one after the other

 private:
  void Put(char c) {
    if (column_ == columns_) NextLine(), ++wrapped_;
    std::string& line = lines_[line_];
    if (line.size() <= column_) line.resize(column_ + 1, ' ');
    line[column_++] = c;
  }
  void NextLine() {  // as a terminal's driver makes of \n
    column_ = 0;
    if (++line_ == lines_.size()) lines_.emplace_back();
  }
  size_t Escape(std::string_view text, size_t at) {
    size_t end = at + 2;
    size_t number = 0;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0)
      number = 10 * number + static_cast<size_t>(text[end++] - '0');
    const std::string_view sequence = text.substr(at, end + 1 - at);
    const size_t top = lines_.size() > rows_ ? lines_.size() - rows_ : 0;  // of what is on the screen
    if (sequence.substr(0, 2) == "\x1b[" && sequence.back() == 'A') {
      line_ = line_ - top < number ? top : line_ - number;
    } else if (sequence == "\x1b[J") {
      lines_.resize(line_ + 1);
      if (lines_[line_].size() > column_) lines_[line_].resize(column_);
    } else {
      unknown_ += sequence;
    }
    return end;
  }

  const size_t columns_, rows_;
  std::vector<std::string> lines_;
  size_t line_ = 0, column_ = 0;
  int wrapped_ = 0;
  std::string unknown_;
};

}  // namespace weir::testing
