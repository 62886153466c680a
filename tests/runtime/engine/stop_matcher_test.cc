#include "runtime/engine/stop_matcher.h"

#include <algorithm>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

StopMatcher Matcher(const std::vector<std::string>& stops) {
  absl::StatusOr<StopMatcher> matcher = StopMatcher::Create(stops);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *matcher;
}

struct Outcome {
  std::string delivered;  // before the end of the text
  std::string held;       // at the end of it
  std::string fired;      // the stop; empty when none did
};

Outcome Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  const StopMatcher matcher = Matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopMatcher::Result result = matcher.Scan(outcome.held, piece);
    const std::string all = outcome.held + piece;
    EXPECT_LE(result.emit, result.end);
    EXPECT_LE(result.end, all.size());
    outcome.delivered += all.substr(0, result.emit);
    if (result.matched >= 0) {
      outcome.fired = stops[result.matched];
      EXPECT_EQ(all.substr(result.emit, result.end - result.emit), outcome.fired);
      outcome.held.clear();
      return outcome;
    }
    outcome.held = all.substr(result.emit);
    EXPECT_LE(outcome.held.size(), kMaxHeldBytes);
  }
  return outcome;
}

// The rule itself, by trying every end and every stop.
Outcome Reference(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          (longest == nullptr || stop.size() > longest->size())) {
        longest = &stop;
      }
    }
    if (longest != nullptr) return {text.substr(0, end - longest->size()), "", *longest};
  }
  for (size_t held = std::min(text.size(), kMaxHeldBytes); held > 0; --held) {
    const std::string tail = text.substr(text.size() - held);
    const bool begins_a_stop = std::any_of(stops.begin(), stops.end(), [&](const std::string& stop) {
      return stop.size() > held && stop.compare(0, held, tail) == 0;
    });
    if (begins_a_stop) return {text.substr(0, text.size() - held), tail, ""};
  }
  return {text, "", ""};
}

void ExpectEqual(const Outcome& outcome, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(outcome.delivered, expected.delivered) << what;
  EXPECT_EQ(outcome.held, expected.held) << what;
  EXPECT_EQ(outcome.fired, expected.fired) << what;
}

TEST(StopMatcher, STR_06_StopsOverTokenBordersAreFoundAndNothingOfThemIsSent) {
  ExpectEqual(Feed({"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "J"}), {"ABC", "", "DEFGHIJ"}, "over borders");
  ExpectEqual(Feed({"Pari"}, {"Paris"}), {"", "", "Pari"}, "at the start of a token");
  ExpectEqual(Feed({"ris"}, {"Paris"}), {"Pa", "", "ris"}, "inside a token");
  ExpectEqual(Feed({"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "X"}), {"ABCDEFGHIX", "", ""}, "never completed");
  ExpectEqual(Feed({"DEFGHIJ"}, {"ABC", "DEF", "G"}), {"ABC", "DEFG", ""}, "undecided");
}

TEST(StopMatcher, STR_07_TextBeforeAStopInTheSameTokenIsKept) {
  ExpectEqual(Feed({"\n"}, {"?\n"}), {"?", "", "\n"}, "");
  ExpectEqual(Feed({"\n"}, {"ab\ncd"}), {"ab", "", "\n"}, "");
}

TEST(StopMatcher, STR_09_PartialMatchesFallBackInsteadOfStartingOver) {
  ExpectEqual(Feed({"aab"}, {"a", "a", "a", "b"}), {"a", "", "aab"}, "");
  ExpectEqual(Feed({"ac", "b"}, {"a", "b"}), {"a", "", "b"}, "");
  ExpectEqual(Feed({"b", "ac"}, {"a", "b"}), {"a", "", "b"}, "");
  ExpectEqual(Feed({"abab"}, {"a", "b", "a", "b", "a", "b"}), {"", "", "abab"}, "");
}

TEST(StopMatcher, TheFirstCompletedStopWinsAndOfSeveralTheLongest) {
  ExpectEqual(Feed({"abcd", "bc"}, {"xabcd"}), {"xa", "", "bc"}, "completes first");
  ExpectEqual(Feed({"bc", "abc", "c"}, {"xabc"}), {"x", "", "abc"}, "one end");
  EXPECT_EQ(Matcher({"x", "ab", "ab"}).Scan("", "ab").matched, 1) << "equal stops: the lower index";
}

TEST(StopMatcher, NeitherChunkingNorOrderOfStopsMatters) {
  std::mt19937 engine(1);
  const auto random_string = [&](size_t size) {
    std::string text(size, 'a');
    for (char& c : text) c = static_cast<char>('a' + engine() % 2 + (engine() % 8 == 0));
    return text;
  };
  int fired = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::string> stops(1 + engine() % 4);
    for (std::string& stop : stops) stop = random_string(1 + engine() % 9);
    const std::string text = random_string(engine() % 30);
    const Outcome expected = Reference(stops, text);
    fired += !expected.fired.empty();
    for (int chunking = 0; chunking < 4; ++chunking) {
      std::vector<std::string> pieces;
      for (size_t at = 0; at < text.size();) {
        const size_t size = chunking == 0 ? text.size() : chunking == 1 ? 1 : engine() % 5;
        pieces.push_back(text.substr(at, size));
        at += std::min(size, text.size() - at);
      }
      ExpectEqual(Feed(stops, pieces), expected, text);
      std::shuffle(stops.begin(), stops.end(), engine);
    }
  }
  EXPECT_GT(fired, 200);
  EXPECT_LT(fired, 1990);
}

TEST(StopMatcher, AHeldPrefixIsScannedUnderOtherStops) {
  // A session goes on after a restore, with a request of its own.
  EXPECT_EQ(Matcher({"###"}).Scan("<|en", "d|>").emit, 7u);
  const StopMatcher::Result result = Matcher({"en"}).Scan("<|en", "d|>");
  EXPECT_EQ(result.matched, 0);
  EXPECT_EQ(result.emit, 2u);
  EXPECT_EQ(result.end, 4u);
}

TEST(StopMatcher, AnyByteMayStandInAStop) {
  std::string all;
  for (int c = 255; c >= 0; --c) all += static_cast<char>(c);
  ExpectEqual(Feed({all}, {"x" + all.substr(0, 100), all.substr(100)}), {"x", "", all}, "256 bytes");
  ExpectEqual(Feed({all}, {"x" + all.substr(0, 255)}), {"x", all.substr(0, 255), ""}, "255 held back");
}

TEST(StopMatcher, LimitsAreRefusedByName) {
  const auto error_of = [](const std::vector<std::string>& stops) {
    const absl::Status status = StopMatcher::Create(stops).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error_of({"a", ""}), HasSubstr("stop[1] is empty"));
  EXPECT_THAT(error_of({std::string(257, 'a')}), HasSubstr("stop[0] has 257 bytes, at most 256"));
  EXPECT_THAT(error_of(std::vector<std::string>(17, "a")),
              HasSubstr("at most 16 strings are allowed, got 17"));
  std::vector<std::string> largest;
  for (char c = 'a'; c < 'a' + 16; ++c) largest.push_back(std::string(256, c));
  EXPECT_TRUE(StopMatcher::Create(largest).ok());
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  EXPECT_TRUE(StopMatcher().empty());
  EXPECT_TRUE(Matcher({}).empty());
  const StopMatcher::Result result = StopMatcher().Scan("ab", "cd");
  EXPECT_EQ(result.emit, 4u);
  EXPECT_EQ(result.matched, -1);
}

}  // namespace
}  // namespace weir
