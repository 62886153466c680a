// Held-out text through a server: bits per byte of its models, in windows of the trained length and by
// position in long stretches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {
class WeirClient;
}  // namespace weir

namespace weir::zoo {

struct Options {
  std::vector<std::string> models;
  int64_t window = 512;   // tokens
  int64_t windows = 0;    // of them, evenly spread over the text; 0: all
  int64_t reach = 32768;  // tokens of a stretch that is read in one go; 0: none
  int64_t stretches = 4;
};

// Positions [from, to) of the stretches.
struct Range {
  int64_t from = 0, to = 0;
  double bits_per_byte = 0;
  std::optional<double> fresh;  // of the same tokens in windows of their own; none where not all were read
};

struct Scored {
  std::string name, mixer, weight_dtype;
  int64_t parameters = 0, weight_bytes = 0;
  int64_t tokens = 0;  // that were scored in windows
  double bits_per_byte = 0;
  std::vector<Range> by_position;
};

// Texts are parted by lines that hold only `mark`.
inline constexpr std::string_view kMark = "<|endoftext|>";
std::vector<std::string_view> Documents(std::string_view text);

absl::StatusOr<std::vector<Scored>> Measure(const WeirClient& client, const Options& options,
                                            std::string_view text);
// One object on one line.
std::string ToJson(const Options& options, const std::vector<Scored>& models);

}  // namespace weir::zoo
