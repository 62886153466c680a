// Stop strings and characters: stops, then a byte stream, then how it is cut into pieces. Any cutting, and a
// state that is saved and taken up again between two pieces, gives what the whole gives.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/engine/stop_matcher.h"
#include "runtime/engine/text_stream.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using weir::StopMatcher;
using weir::TextState;
using weir::TextStream;

struct Outcome {
  std::string text;
  std::string tail;
  int stop = -1;
  bool operator==(const Outcome&) const = default;
};

// `cuts`: sizes of the pieces, less one, over and over; empty: one piece. A piece without text, as a special
// token has, lies before each. `restore`: a new stream for every piece.
Outcome Run(const StopMatcher& stops, std::string_view bytes, const std::string& cuts, bool restore) {
  Outcome outcome;
  TextStream stream(stops);
  for (size_t piece = 0; !bytes.empty() && outcome.stop < 0; ++piece) {
    const size_t size =
        cuts.empty() ? bytes.size() : 1 + static_cast<unsigned char>(cuts[piece % cuts.size()]) % 8;
    if (restore) {
      const TextState state = stream.state();
      WEIR_CHECK(state.IsValid());
      stream = TextStream(stops, state);
    }
    WEIR_CHECK(stream.Append("", &outcome.text) < 0);
    outcome.stop = stream.Append(bytes.substr(0, size), &outcome.text);
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  stream.Finish(&outcome.text, &outcome.tail);
  return outcome;
}

// Where the first completed stop begins, by looking at every end; npos without one.
size_t FirstStop(const std::vector<std::string>& stops, const std::string& bytes) {
  for (size_t end = 1; end <= bytes.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (stop.size() <= end && bytes.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest > 0) return end - longest;
  }
  return std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  weir::fuzz::FuzzInput input(data, size);
  std::vector<std::string> strings(input.Below(5));
  for (std::string& stop : strings) stop = input.Bytes(1 + input.Below(6));
  const std::string cuts = input.Bytes(input.Below(8));
  const std::string bytes(input.rest());
  const auto stops = StopMatcher::Create(strings);
  if (std::any_of(strings.begin(), strings.end(), [](const auto& stop) { return stop.empty(); })) {
    WEIR_CHECK(!stops.ok());
    return 0;
  }
  WEIR_CHECK(stops.ok());
  const Outcome whole = Run(*stops, bytes, "", false);
  WEIR_CHECK(whole == Run(*stops, bytes, cuts, false));
  WEIR_CHECK(whole == Run(*stops, bytes, cuts, true));
  const size_t stop = FirstStop(strings, bytes);
  WEIR_CHECK((stop == std::string::npos) == (whole.stop < 0));
  // Without stops: the text before the match alone gives the same characters.
  const Outcome plain = Run(StopMatcher(), bytes.substr(0, stop), "", false);
  if (whole.stop < 0) WEIR_CHECK(whole == plain);
  WEIR_CHECK(whole.text.substr(0, plain.text.size()) == plain.text);
  return 0;
}
