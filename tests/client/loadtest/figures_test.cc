// What a load test computes of what it saw: percentiles, the figures of one stream, draws, arrivals,
// requests.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "client/loadtest/arrivals.h"
#include "client/loadtest/latency_histogram.h"
#include "client/loadtest/seeded_draws.h"
#include "client/loadtest/turn_record.h"
#include "client/loadtest/workload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Purpose = SeededDraws::Purpose;

constexpr int64_t kMs = 1'000'000;

double NearestRank(const std::vector<int64_t>& sorted, int64_t numerator, int64_t denominator) {
  const int64_t n = static_cast<int64_t>(sorted.size());
  const int64_t rank = std::max<int64_t>(1, (n * numerator + denominator - 1) / denominator);
  return static_cast<double>(sorted[static_cast<size_t>(rank - 1)]);
}

TEST(LatencyHistogram, IsExactWhereTheValuesOfABucketAreEqual) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(99, 100), 0);
  histogram.Add(10 * kMs, 593);
  histogram.Add(1470 * kMs);
  histogram.Add(2010 * kMs, 6);
  EXPECT_EQ(histogram.count(), 600);
  EXPECT_EQ(histogram.Quantile(593, 600), 10.0 * kMs);
  EXPECT_EQ(histogram.Quantile(99, 100), 1470.0 * kMs);  // the 594th
  EXPECT_EQ(histogram.Quantile(999, 1000), 2010.0 * kMs);
  EXPECT_EQ(histogram.max(), 2010 * kMs);
  EXPECT_EQ(histogram.CountAbove(100 * kMs), 7);
  EXPECT_DOUBLE_EQ(histogram.Mean(), (5930.0 + 1470 + 6 * 2010) / 600 * kMs);
  histogram.Add(-5);
  EXPECT_EQ(histogram.Quantile(1, 1000), 0);
}

TEST(LatencyHistogram, EveryQuantileIsWithinABucketOfTheNearestRank) {
  SeededDraws draws(1, Purpose::kPrompt, 0);
  std::vector<int64_t> values;
  LatencyHistogram whole, left, right;
  for (int i = 0; i < 5000; ++i) {
    // From 0 to 2^62, as many in each octave.
    const int64_t value = static_cast<int64_t>(draws.Bits() >> (2 + draws.Below(62)));
    values.push_back(value);
    whole.Add(value);
    (i % 3 == 0 ? left : right).Add(value);
  }
  left.Merge(right);
  std::sort(values.begin(), values.end());
  for (int64_t permille = 0; permille <= 1000; ++permille) {
    const double exact = NearestRank(values, permille, 1000);
    EXPECT_THAT(whole.Quantile(permille, 1000), DoubleNear(exact, exact / 1024)) << permille;
    EXPECT_EQ(left.Quantile(permille, 1000), whole.Quantile(permille, 1000)) << permille;
  }
  EXPECT_EQ(left.count(), 5000);
  EXPECT_EQ(whole.max(), values.back());
  EXPECT_EQ(whole.CountAbove(values.back()), 0);
  EXPECT_EQ(whole.CountAbove(-1), 5000);
}

// One value a bucket, so that every border between two buckets is seen.
TEST(LatencyHistogram, BordersOfOctavesFallIntoOneBucketEach) {
  for (int bits = 0; bits < 62; ++bits) {
    const int64_t border = int64_t{1} << bits;
    LatencyHistogram histogram;
    for (const int64_t value : {border - 1, border, border + border / 512}) histogram.Add(value);
    EXPECT_EQ(histogram.Quantile(1, 3), static_cast<double>(border - 1)) << bits;
    EXPECT_EQ(histogram.Quantile(3, 3), static_cast<double>(border + border / 512)) << bits;
    if (border >= 512) EXPECT_EQ(histogram.Quantile(2, 3), static_cast<double>(border)) << bits;
  }
}

// Gaps of a record, one number each.
class Gaps {
 public:
  void Delta(TurnRecord* record, int64_t at_ms, int64_t tokens, bool text = true) {
    record->Delta(absl::Milliseconds(at_ms), tokens, text, [&](int64_t gap, int64_t times) {
      for (int64_t i = 0; i < times; ++i) ms.push_back(gap / kMs);
    });
  }
  std::vector<int64_t> ms;
};

// LTG_02: the header message and the byte that is held back.
TEST(TurnRecord, LTG_02_TheFirstTokenCountsAndNotTheFirstMessage) {
  TurnRecord record(absl::ZeroDuration());
  Gaps gaps;
  gaps.Delta(&record, 5, 0, /*text=*/false);
  gaps.Delta(&record, 100, 1, /*text=*/false);
  gaps.Delta(&record, 150, 1, /*text=*/true);
  record.End(absl::Milliseconds(160));
  EXPECT_EQ(record.TimeToFirstToken(), absl::Milliseconds(100));
  EXPECT_EQ(record.TimeToFirstText(), absl::Milliseconds(150));
  EXPECT_EQ(record.EndToEnd(), absl::Milliseconds(160));
  EXPECT_EQ(record.TimePerOutputToken(), absl::Milliseconds(60));
  EXPECT_THAT(gaps.ms, ElementsAre(50));

  TurnRecord empty(absl::ZeroDuration());
  gaps.Delta(&empty, 5, 0, /*text=*/false);
  empty.End(absl::Milliseconds(10));
  EXPECT_EQ(empty.TimeToFirstToken(), std::nullopt);
  EXPECT_EQ(empty.TimeToFirstText(), std::nullopt);
  EXPECT_EQ(empty.TimePerOutputToken(), std::nullopt);
  EXPECT_EQ(empty.TokensPerSecond(), std::nullopt);
}

TEST(TurnRecord, LTG_03_AMessageOfSeveralTokensIsSeveralGaps) {
  TurnRecord record(absl::Milliseconds(-10));  // due before it was sent
  Gaps gaps;
  gaps.Delta(&record, 0, 1);
  gaps.Delta(&record, 40, 4);
  gaps.Delta(&record, 100, 3);
  EXPECT_EQ(record.tokens(), 8);
  EXPECT_THAT(gaps.ms, ElementsAre(40, 0, 0, 0, 60, 0, 0));
  EXPECT_EQ(record.TimeToFirstToken(), absl::Milliseconds(10));
  EXPECT_EQ(record.TokensPerSecond(), 70.0);

  TurnRecord at_once(absl::ZeroDuration());
  Gaps none;
  none.Delta(&at_once, 7, 3);
  EXPECT_THAT(none.ms, ElementsAre(0, 0));
  EXPECT_EQ(at_once.TokensPerSecond(), std::nullopt);  // of no time
  EXPECT_EQ(at_once.TimePerOutputToken(), std::nullopt);
}

// Against numbers of the C library, and one that is written down: other machines have to get the same.
TEST(SeededDraws, AreTheSameEverywhereAndAsTheyShouldBe) {
  EXPECT_EQ(SeededDraws(7, Purpose::kModel, 3).Bits(), SeededDraws(7, Purpose::kModel, 3).Bits());
  EXPECT_NE(SeededDraws(7, Purpose::kModel, 3).Bits(), SeededDraws(7, Purpose::kPrompt, 3).Bits());
  EXPECT_NE(SeededDraws(7, Purpose::kModel, 3).Bits(), SeededDraws(8, Purpose::kModel, 3).Bits());
  EXPECT_NE(SeededDraws(7, Purpose::kModel, 3).Bits(), SeededDraws(7, Purpose::kModel, 4).Bits());
  for (double x = 0x1p-53; x < 1e9; x *= 1.37) {
    EXPECT_THAT(PortableLog(x), DoubleNear(std::log(x), 1e-15 * std::max(1.0, std::abs(std::log(x))))) << x;
    const double y = std::log(x);
    EXPECT_THAT(PortableExp(y) / std::exp(y), DoubleNear(1, 2e-15)) << y;
  }
  EXPECT_EQ(PortableLog(1), 0);
  EXPECT_EQ(PortableExp(0), 1);

  SeededDraws draws(1, Purpose::kPrompt, 1);
  double exponential = 0, normal = 0, squares = 0;
  std::map<uint64_t, int> thirds;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    exponential += draws.Exponential();
    const double x = draws.Normal();
    normal += x;
    squares += x * x;
    ++thirds[draws.Below(3)];
  }
  // Six standard deviations of a mean of 20,000.
  EXPECT_THAT(exponential / kDraws, DoubleNear(1, 0.043));
  EXPECT_THAT(normal / kDraws, DoubleNear(0, 0.043));
  EXPECT_THAT(squares / kDraws, DoubleNear(1, 0.06));
  ASSERT_EQ(thirds.size(), 3u);
  for (const auto& [third, count] : thirds) EXPECT_NEAR(count, kDraws / 3, 400) << third;
}

TEST(OpenArrivals, ConstantOnesAreDueAtEvenDistancesFromTheStart) {
  OpenArrivals arrivals(ArrivalKind::kConstant, 3, 0);
  EXPECT_EQ(arrivals.Next(), absl::ZeroDuration());
  EXPECT_EQ(arrivals.Next(), absl::Nanoseconds(333'333'333));
  EXPECT_EQ(arrivals.Next(), absl::Nanoseconds(666'666'667));
  EXPECT_EQ(arrivals.Next(), absl::Seconds(1));  // no error adds up
}

TEST(OpenArrivals, PoissonOnesAreSeededWithTheRightMeanAndSpread) {
  OpenArrivals arrivals(ArrivalKind::kPoisson, 50, 7), again(ArrivalKind::kPoisson, 50, 7),
      other(ArrivalKind::kPoisson, 50, 8);
  EXPECT_NE(OpenArrivals(ArrivalKind::kPoisson, 50, 7).Next(), other.Next());
  absl::Duration last;
  double squares = 0;
  int64_t longer = 0;
  constexpr int kArrivals = 20'000;
  for (int i = 0; i < kArrivals; ++i) {
    const absl::Duration at = arrivals.Next();
    ASSERT_EQ(at, again.Next());
    ASSERT_GE(at, last);
    const double gap = absl::ToDoubleSeconds(at - last) * 50;  // in mean gaps
    squares += gap * gap;
    longer += gap > 1 ? 1 : 0;
    last = at;
  }
  EXPECT_THAT(absl::ToDoubleSeconds(last), DoubleNear(400, 400 * 0.043));
  EXPECT_THAT(squares / kArrivals, DoubleNear(2, 0.3));  // E[x^2] of an exponential gap
  EXPECT_THAT(static_cast<double>(longer) / kArrivals, DoubleNear(1 / M_E, 0.021));  // memoryless
}

TEST(LengthSpec, SaysWhatMayBeWritten) {
  for (const char* text : {"", "0", "-3", "3-", "8-4", "1.5", "lognormal:", "lognormal:9", "lognormal:9,3",
                           "lognormal:5-9", "999999999999", "4-8-9", "12 "}) {
    const auto spec = ParseLengthSpec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("write N, A-B")) << text;
  }
  SeededDraws draws(1, Purpose::kPromptLength, 0);
  EXPECT_EQ(ParseLengthSpec("17")->Draw(&draws), 17);
  std::map<int64_t, int> uniform;
  for (int i = 0; i < 4000; ++i) ++uniform[ParseLengthSpec("3-6")->Draw(&draws)];
  EXPECT_EQ(uniform.size(), 4u);
  EXPECT_EQ(uniform.begin()->first, 3);
  EXPECT_EQ(uniform.rbegin()->first, 6);
  for (const auto& [length, count] : uniform) EXPECT_NEAR(count, 1000, 170) << length;
}

TEST(LengthSpec, LognormalHasItsMedianAndItsTail) {
  const LengthSpec spec = *ParseLengthSpec("lognormal:100,800");
  SeededDraws draws(3, Purpose::kPromptLength, 0);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 20'000; ++i) lengths.push_back(spec.Draw(&draws));
  std::sort(lengths.begin(), lengths.end());
  EXPECT_GE(lengths.front(), 1);
  EXPECT_LE(lengths.back(), 8000);
  EXPECT_THAT(NearestRank(lengths, 1, 2), DoubleNear(100, 5));
  EXPECT_THAT(NearestRank(lengths, 99, 100), DoubleNear(800, 80));
}

WorkloadOptions TwoModels() {
  return {.models = {{.name = "a", .weight = 3, .vocab_size = 50, .eos_token_ids = {2, 49}},
                     {.name = "b", .weight = 1, .vocab_size = 4, .eos_token_ids = {0, 3}}},
          .prompts = {},
          .prompt_tokens = {LengthSpec::Kind::kUniform, 1, 40},
          .output_tokens = {LengthSpec::Kind::kUniform, 5, 9},
          .turns = 2,
          .seed = 11};
}

TEST(Workload, IsAFunctionOfSeedAndIndex) {
  const Workload workload(TwoModels()), again(TwoModels());
  WorkloadOptions other_seed = TwoModels();
  other_seed.seed = 12;
  const Workload other(other_seed);
  int64_t differences = 0;
  std::map<size_t, int> models;
  for (int at = 999; at >= 0; --at) {  // whatever came before
    const auto index = static_cast<uint64_t>(at);
    ++models[workload.ModelOf(index)];
    ASSERT_EQ(workload.ModelOf(index), again.ModelOf(index));
    for (const int turn : {1, 0}) {
      const PlannedTurn planned = workload.Turn(index, turn), same = again.Turn(index, turn);
      ASSERT_EQ(planned.prompt.token_ids, same.prompt.token_ids);
      ASSERT_EQ(planned.output_tokens, same.output_tokens);
      ASSERT_EQ(planned.sampling_seed, same.sampling_seed);
      differences += planned.prompt.token_ids != other.Turn(index, turn).prompt.token_ids ? 1 : 0;
    }
    ASSERT_NE(workload.Turn(index, 0).sampling_seed, workload.Turn(index, 1).sampling_seed);
  }
  EXPECT_GT(differences, 1900);
  EXPECT_NEAR(models[0], 750, 83);  // three to one, within six standard deviations
}

TEST(Workload, IdsAreOfTheVocabularyAndEndNoText) {
  const Workload workload(TwoModels());
  std::map<size_t, std::map<int32_t, int>> seen;
  for (uint64_t index = 0; index < 2000; ++index) {
    const PlannedTurn planned = workload.Turn(index, 0);
    ASSERT_GE(planned.output_tokens, 5);
    ASSERT_LE(planned.output_tokens, 9);
    for (const int32_t id : planned.prompt.token_ids) ++seen[workload.ModelOf(index)][id];
  }
  EXPECT_EQ(seen[0].size(), 48u);  // all but two, and none else
  for (const int32_t id : {2, 49, 50, -1}) EXPECT_EQ(seen[0].count(id), 0u) << id;
  EXPECT_THAT(seen[1], ElementsAre(::testing::Key(1), ::testing::Key(2)));
  // A vocabulary of nothing but the ends of texts.
  WorkloadOptions only = TwoModels();
  only.models = {{.name = "c", .weight = 1, .vocab_size = 1, .eos_token_ids = {0}}};
  EXPECT_EQ(Workload(only).Turn(0, 0).prompt.token_ids.front(), 0);
}

TEST(Workload, TakesLinesOfAFileInTurn) {
  WorkloadOptions options = TwoModels();
  options.prompts = *PromptLines("one\r\n\ntwo\nthree", "p.txt");
  const Workload workload(options);
  EXPECT_EQ(workload.Turn(0, 0).prompt.text, "one");
  EXPECT_EQ(workload.Turn(0, 1).prompt.text, "two");
  EXPECT_EQ(workload.Turn(1, 0).prompt.text, "three");
  EXPECT_EQ(workload.Turn(1, 1).prompt.text, "one");
  EXPECT_TRUE(workload.Turn(1, 1).prompt.token_ids.empty());
  EXPECT_THAT(std::string(PromptLines("\n\n", "p.txt").status().message()),
              HasSubstr("'p.txt': has no prompt"));
  EXPECT_THAT(std::string(PromptLines("a\nb\xe9\n", "p.txt").status().message()),
              HasSubstr("'p.txt': line 2 is not UTF-8: byte 1 of it is 0xe9"));
}

}  // namespace
}  // namespace weir
