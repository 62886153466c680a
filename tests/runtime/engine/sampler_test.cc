#include "runtime/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kVocab = 300;  // four blocks of 64 and a part

std::vector<float> RandomRow(int32_t size, float spread, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(static_cast<size_t>(size));
  for (float& logit : row) logit = normal(engine);
  return row;
}

SampleResult SampleRow(std::vector<float> row, const SamplingParams& params, uint64_t token_index = 0,
                       const TokenHistory& history = {}, const std::vector<int32_t>& suppressed = {}) {
  Sampler sampler(static_cast<int32_t>(row.size()), static_cast<int32_t>(row.size()));
  return sampler.Sample(row, params, history, token_index, suppressed);
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// What a draw may give and how likely, by a full sort in double precision. Zero: filtered out.
std::vector<double> ExactProbabilities(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  std::vector<double> weight(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(row[i]) - row[order[0]]) / params.temperature);
  }
  if (params.top_k > 0 && params.top_k < static_cast<int32_t>(row.size())) order.resize(params.top_k);
  double total = 0;
  for (const int32_t id : order) total += weight[id];
  double mass = 0;
  size_t kept = 0;
  while (kept < order.size()) {
    mass += weight[order[kept++]];
    if (params.top_p < 1 && mass >= params.top_p * total) break;
  }
  order.resize(kept);
  while (order.size() > 1 && weight[order.back()] < params.min_p) order.pop_back();
  double left = 0;
  for (const int32_t id : order) left += weight[id];
  std::vector<double> probabilities(row.size());
  for (const int32_t id : order) probabilities[id] = weight[id] / left;
  return probabilities;
}

std::vector<std::string> Fields(const SamplingParams& params, int32_t vocab_size = kVocab) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : Check(params, vocab_size)) fields.push_back(violation.field);
  return fields;
}

TEST(SamplingParams, SMP_01_NonFiniteAndNegativeValuesAreRefusedByName) {
  for (const float bad : {kNan, kInf, -kInf, -1.0f}) {
    SamplingParams params;
    params.temperature = bad;
    EXPECT_THAT(Fields(params), ElementsAre("temperature")) << bad;
  }
  for (const float bad : {kNan, kInf, -kInf}) {
    SamplingParams params;
    params.top_p = params.min_p = params.repetition_penalty = bad;
    params.presence_penalty = params.frequency_penalty = bad;
    EXPECT_THAT(Fields(params),
                ElementsAre("top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"))
        << bad;
  }
  SamplingParams params;
  EXPECT_TRUE(Validate(params, kVocab).ok());
  params.temperature = kNan;
  params.top_p = 1.5f;
  const absl::Status status = Validate(params, kVocab);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("temperature must be a finite number of at least 0 ("));
  EXPECT_THAT(std::string(status.message()), HasSubstr("got nan"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("top_p must be between 0 and 1"));
}

TEST(SamplingParams, SMP_01_ExtremeTemperaturesAreServed) {
  const std::vector<float> row = RandomRow(kVocab, 3, 1);
  const int32_t arg_max = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  for (const float temperature : {0.0f, -0.0f, 1e-45f, 1e-38f, 1e-30f}) {
    SamplingParams params;
    params.temperature = temperature;
    EXPECT_THAT(Fields(params), ElementsAre());
    for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(SampleRow(row, params, i).token, arg_max) << temperature;
  }
  for (const float temperature : {1e30f, std::numeric_limits<float>::max()}) {
    SamplingParams params;
    params.temperature = temperature;
    params.logit_bias = {{5, -kInf}};
    EXPECT_THAT(Fields(params), ElementsAre());
    std::set<int32_t> seen;
    for (uint64_t i = 0; i < 5000; ++i) {
      const SampleResult result = SampleRow(row, params, i);
      ASSERT_TRUE(result.finite);
      seen.insert(result.token);
    }
    EXPECT_EQ(seen.count(5), 0u);
    EXPECT_GT(seen.size(), 290u) << "so hot a draw is uniform";
  }
}

TEST(Sampler, SMP_02_TemperatureZeroIsTheLowestArgMaxWhateverTheSeed) {
  std::vector<float> row = RandomRow(kVocab, 1, 2);
  row[41] = row[170] = row[299] = 9;
  for (const uint64_t seed : {1, 2, 3}) {
    SamplingParams params = Greedy();
    params.top_p = 0.5f;
    params.seed = seed;
    for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(SampleRow(row, params, i).token, 41);
  }
  EXPECT_EQ(SampleRow(std::vector<float>(kVocab, -2.5f), Greedy()).token, 0);
}

TEST(Sampler, SMP_04_TinyTopPKeepsTheArgMax) {
  std::vector<float> row = RandomRow(4096, 1, 4);
  row[3801] = *std::max_element(row.begin(), row.end()) + 0.25f;
  SamplingParams params;
  for (const float top_p : {0.0f, 1e-8f, 1e-4f, 1e-3f}) {
    params.top_p = top_p;
    for (uint64_t i = 0; i < 400; ++i) {
      params.top_k = i % 2 == 0 ? 0 : 50;
      params.min_p = i % 4 < 2 ? 0.0f : 1.0f;
      ASSERT_EQ(SampleRow(row, params, i).token, 3801) << top_p << " at " << i;
    }
  }
}

TEST(SamplingParams, SMP_06_TopKAndTopLogprobsHaveDefinedLimits) {
  for (const int32_t top_k : {-1, 0, 1, kVocab - 1, kVocab, kVocab + 1, 9'999'999}) {
    SamplingParams params;
    params.top_k = top_k;
    EXPECT_THAT(Fields(params), ElementsAre()) << top_k;
  }
  SamplingParams params;
  params.top_k = -2;
  params.top_logprobs = kVocab + 1;
  params.min_tokens = -1;
  EXPECT_THAT(Fields(params), ElementsAre("top_k", "top_logprobs", "min_tokens"));
  params = {};
  params.top_logprobs = 5;
  EXPECT_THAT(Fields(params, 4), ElementsAre("top_logprobs")) << "more than the vocabulary holds";
  EXPECT_THAT(Fields(params, 5), ElementsAre());
}

TEST(Sampler, SMP_06_TopKOfTheVocabularyAndMoreIsOff) {
  const std::vector<float> row = RandomRow(kVocab, 2, 6);
  for (uint64_t i = 0; i < 200; ++i) {
    SamplingParams params;
    const int32_t off = SampleRow(row, params, i).token;
    for (const int32_t top_k : {-1, kVocab, kVocab + 1, 9'999'999}) {
      params.top_k = top_k;
      ASSERT_EQ(SampleRow(row, params, i).token, off) << top_k;
    }
    params.top_k = 1;
    ASSERT_EQ(SampleRow(row, params, i).token, SampleRow(row, Greedy()).token);
  }
}

TEST(Sampler, SMP_06_TopKKeepsExactlyKWithTiesToTheLowestIds) {
  const std::vector<float> flat(kVocab, 1.0f);
  for (const int32_t top_k : {1, 3, 5, 70, 299}) {
    SamplingParams params;
    params.top_k = top_k;
    int32_t largest = 0;
    for (uint64_t i = 0; i < 4000; ++i) largest = std::max(largest, SampleRow(flat, params, i).token);
    EXPECT_EQ(largest, top_k - 1);
  }
}

TEST(SamplingParams, SMP_07_BadLogitBiasIsRefused) {
  const auto fields_of = [](std::vector<std::pair<int32_t, float>> bias) {
    SamplingParams params;
    params.logit_bias = std::move(bias);
    return Fields(params);
  };
  for (const int32_t id : {-1, kVocab, 191222}) EXPECT_THAT(fields_of({{id, 1}}), ElementsAre("logit_bias"));
  for (const float value : {kNan, kInf, 100.5f, -101.0f}) {
    EXPECT_THAT(fields_of({{3, value}}), ElementsAre("logit_bias")) << value;
  }
  EXPECT_THAT(fields_of({{3, 1}, {3, 2}}), ElementsAre("logit_bias")) << "named twice";
  EXPECT_THAT(fields_of({{4, 1}, {3, 2}}), ElementsAre("logit_bias")) << "not sorted";
  EXPECT_THAT(fields_of({{0, -kInf}, {1, -100}, {2, 100}, {kVocab - 1, 0}}), ElementsAre());
  EXPECT_THAT(fields_of(std::vector<std::pair<int32_t, float>>(100'000, {1, 1})), ElementsAre("logit_bias"));
  EXPECT_LE(fields_of(std::vector<std::pair<int32_t, float>>(1000, {-1, kNan})).size(), 17u)
      << "the reply stays small";
}

TEST(Sampler, SMP_09_BansHold) {
  std::vector<float> row = RandomRow(kVocab, 1, 9);
  row[7] = 200;  // a finite bias of -100 alone would leave it on top
  row[90] = 20;
  for (const float ban : {-kInf, -100.0f}) {
    SamplingParams params = Greedy();
    params.logit_bias = {{7, ban}};
    for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(SampleRow(row, params, i).token, 90);
    for (const float temperature : {0.7f, 50.0f, 1e30f}) {
      params.temperature = temperature;
      for (uint64_t i = 0; i < 300; ++i) EXPECT_NE(SampleRow(row, params, i).token, 7);
      params.top_k = 250;
      for (uint64_t i = 0; i < 300; ++i) EXPECT_NE(SampleRow(row, params, i).token, 7);
      params.top_k = 0;
    }
  }
}

TEST(Sampler, SMP_09_ARequestThatBansEverythingIsToldFromABrokenModel) {
  SamplingParams params;
  params.logit_bias = {{0, -kInf}, {1, -100}};
  const SampleResult banned = SampleRow({1, 2, 3}, params, 0, {}, {2});
  EXPECT_TRUE(!banned.finite && banned.no_candidate && banned.token == -1);
  const SampleResult broken = SampleRow({-kInf, -kInf, -kInf}, params);
  EXPECT_TRUE(!broken.finite && !broken.no_candidate && broken.token == -1);
}

// The logit that a penalty leaves, read through a greedy choice against a bracket around the expected value.
void ExpectPenalised(float logit, const SamplingParams& base, const TokenHistory& history, float expected) {
  SamplingParams params = base;
  params.temperature = 0;
  const float slack = 1e-5f;
  EXPECT_EQ(SampleRow({expected - slack, logit}, params, 0, history).token, 1) << logit << " -> " << expected;
  EXPECT_EQ(SampleRow({expected + slack, logit}, params, 0, history).token, 0) << logit << " -> " << expected;
}

TEST(Sampler, SMP_10_RepetitionCountsOnceAndSeesPromptAndOutput) {
  SamplingParams params;
  params.repetition_penalty = 1.5f;
  for (const bool is_output : {false, true}) {
    for (const int times : {1, 3}) {
      TokenHistory history;
      for (int i = 0; i < times; ++i) history.Add(1, is_output);
      ExpectPenalised(2.0f, params, history, 1.333333f);
      ExpectPenalised(-2.0f, params, history, -3.0f);
    }
  }
  ExpectPenalised(2.0f, params, {}, 2.0f);
}

TEST(Sampler, SMP_10_TheWindowEndsWhereItSays) {
  SamplingParams params;
  params.repetition_penalty = 1.5f;
  params.penalty_window = 20;
  TokenHistory history;
  history.Add(1, true);
  for (int i = 0; i < 19; ++i) history.Add(2, true);
  // A third id, so that filling the window penalises neither of the two that are compared.
  params.temperature = 0;
  const auto choose = [&](float other) { return SampleRow({other, 2.0f, -50.0f}, params, 0, history).token; };
  EXPECT_EQ(choose(1.5f), 0) << "distance 20 is penalised: 1.33";
  history.Add(2, true);
  EXPECT_EQ(choose(1.5f), 1) << "distance 21 is not: 2.0";
}

TEST(Sampler, SMP_10_PresenceAndFrequencySeeOutputOnly) {
  TokenHistory prompt;
  for (int i = 0; i < 3; ++i) prompt.Add(1, false);
  TokenHistory output;
  for (int i = 0; i < 3; ++i) output.Add(1, true);
  SamplingParams presence;
  presence.presence_penalty = 0.5f;
  ExpectPenalised(2.0f, presence, prompt, 2.0f);
  ExpectPenalised(2.0f, presence, output, 1.5f);
  SamplingParams frequency;
  frequency.frequency_penalty = 0.5f;
  ExpectPenalised(2.0f, frequency, prompt, 2.0f);
  ExpectPenalised(2.0f, frequency, output, 0.5f);
  frequency.presence_penalty = 0.25f;
  frequency.repetition_penalty = 2.0f;
  ExpectPenalised(2.0f, frequency, output, 1.0f - 1.5f - 0.25f);
}

TEST(Sampler, SMP_10_PenaltiesLeaveNoTraceForTheNextRequest) {
  Sampler sampler(8, 8);
  SamplingParams params = Greedy();
  params.repetition_penalty = 2.0f;
  TokenHistory history;
  for (int i = 0; i < 300; ++i) history.Add(i % 8, i % 3 == 0);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> row = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_EQ(sampler.Sample(row, params, history, 0, {}).token, 7);
    EXPECT_FLOAT_EQ(row[7], 4.0f);
    row = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_EQ(sampler.Sample(row, params, {}, 0, {}).token, 7);
    EXPECT_FLOAT_EQ(row[7], 8.0f);
  }
}

std::vector<int32_t> DrawMany(Sampler* sampler, const SamplingParams& params, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    std::vector<float> row = RandomRow(kVocab, 2, 1000 + i);
    tokens.push_back(sampler->Sample(row, params, {}, i, {}).token);
  }
  return tokens;
}

TEST(Sampler, SMP_11_NeighboursDoNotChangeADraw) {
  SamplingParams params;
  params.temperature = 0.8f;
  params.seed = 42;
  Sampler alone(kVocab, kVocab);
  const std::vector<int32_t> expected = DrawMany(&alone, params, 32);
  Sampler shared(kVocab, kVocab);
  std::mt19937 engine(7);
  for (int run = 0; run < 5; ++run) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < 32; ++i) {
      for (int others = static_cast<int>(engine() % 8); others > 0; --others) {
        SamplingParams other;
        other.seed = engine();
        other.top_k = static_cast<int32_t>(engine() % 60);
        other.top_p = static_cast<float>(engine() % 100) / 100;
        other.repetition_penalty = 1.2f;
        other.top_logprobs = 20;
        TokenHistory history;
        history.Add(static_cast<int32_t>(engine() % kVocab), true);
        std::vector<float> row = RandomRow(kVocab, 4, engine());
        shared.Sample(row, other, history, engine(), {});
      }
      std::vector<float> row = RandomRow(kVocab, 2, 1000 + i);
      tokens.push_back(shared.Sample(row, params, {}, i, {}).token);
    }
    EXPECT_EQ(tokens, expected);
  }
}

TEST(Sampler, SMP_12_EverySeedIsReal) {
  Sampler sampler(kVocab, kVocab);
  std::set<std::vector<int32_t>> streams;
  const std::vector<uint64_t> seeds = {0, 1, 42, 43, uint64_t{1} << 32, ~uint64_t{0}};
  for (const uint64_t seed : seeds) {
    SamplingParams params;
    params.seed = seed;
    const std::vector<int32_t> stream = DrawMany(&sampler, params, 64);
    EXPECT_EQ(stream, DrawMany(&sampler, params, 64)) << seed;
    streams.insert(stream);
  }
  EXPECT_EQ(streams.size(), seeds.size());
}

TEST(Sampler, SMP_15_AllSuppressedIdsAreHeldBack) {
  std::vector<float> row = RandomRow(kVocab, 1, 15);
  row[5] = 30;
  row[2] = 29;
  row[77] = 10;
  EXPECT_EQ(SampleRow(row, Greedy(), 0, {}, {2, 5, kVocab, -1, 1'000'000}).token, 77);
  EXPECT_EQ(SampleRow(row, Greedy(), 0, {}, {}).token, 5);
}

TEST(Sampler, SMP_16_PaddedRowsAreNeverDrawn) {
  std::vector<float> row = RandomRow(128, 1, 16);
  row[120] = 50;
  row[127] = kNan;  // nobody trained the padding
  const float best = *std::max_element(row.begin(), row.begin() + 100);
  Sampler sampler(128, 100);
  for (uint64_t i = 0; i < 500; ++i) {
    SamplingParams params;
    params.temperature = i % 2 == 0 ? 0.0f : 5.0f;
    params.top_logprobs = 20;
    params.top_k = i % 3 == 0 ? 110 : 0;
    params.logit_bias = {{110, 100.0f}};
    std::vector<float> copy = row;
    const SampleResult result = sampler.Sample(copy, params, {}, i, {});
    ASSERT_TRUE(result.finite);
    ASSERT_LT(result.token, 100);
    for (int32_t t = 0; t < result.num_top; ++t) ASSERT_LT(result.top[t].token, 100);
    if (i % 2 == 0) {
      ASSERT_EQ(row[result.token], best);
    }
  }
}

TEST(Sampler, SCH_11_BiasesStayWithTheirStream) {
  Sampler sampler(kVocab, kVocab);
  std::mt19937 engine(11);
  std::vector<SamplingParams> streams(64);
  for (int i = 0; i < 64; ++i) streams[i].logit_bias = {{i, 100.0f}};
  for (int step = 0; step < 40; ++step) {
    for (int i = 0; i < 64; ++i) {
      if (engine() % 3 == 0) continue;
      std::vector<float> row = RandomRow(kVocab, 1, engine());
      ASSERT_EQ(sampler.Sample(row, streams[i], {}, step, {}).token, i);
    }
  }
}

TEST(Sampler, SCH_12_NothingIsSampledFromANonFiniteRow) {
  for (const float poison : {kNan, -kNan, kInf}) {
    for (const size_t at : {0u, 63u, 64u, 257u, 299u}) {
      for (int variant = 0; variant < 8; ++variant) {
        std::vector<float> row = RandomRow(kVocab, 1, 12);
        row[at] = poison;
        SamplingParams params;
        params.temperature = static_cast<float>(variant / 4);
        params.top_logprobs = variant % 4 == 1 ? 5 : 0;
        // Editing the id must not hide it.
        if (variant % 4 == 2) params.logit_bias = {{static_cast<int32_t>(at), -kInf}};
        const std::vector<int32_t> suppressed(variant % 4 == 3 ? 1 : 0, static_cast<int32_t>(at));
        const SampleResult result = SampleRow(row, params, 0, {}, suppressed);
        EXPECT_FALSE(result.finite || result.no_candidate)
            << poison << " at " << at << " variant " << variant;
        EXPECT_TRUE(result.token == -1 && result.num_top == 0);
      }
    }
  }
  std::vector<float> masked(kVocab, -kInf);
  masked[3] = -1e30f;
  EXPECT_EQ(SampleRow(masked, {}).token, 3) << "-inf is a mask, not an error";
}

std::vector<int> CountDraws(const std::vector<float>& row, SamplingParams params, int draws) {
  Sampler sampler(static_cast<int32_t>(row.size()), static_cast<int32_t>(row.size()));
  std::vector<int> counts(row.size());
  std::vector<float> copy;
  for (int i = 0; i < draws; ++i) {
    params.seed = static_cast<uint64_t>(i % 3);
    copy = row;
    ++counts[sampler.Sample(copy, params, {}, static_cast<uint64_t>(i), {}).token];
  }
  return counts;
}

struct Filter {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
};

class Distribution : public ::testing::TestWithParam<Filter> {};

// Pearson's chi-square over ids that are expected at least 5 times, the rest pooled.
TEST_P(Distribution, DrawsMatchExactProbabilities) {
  constexpr int kDraws = 20'000;
  SamplingParams params;
  params.temperature = GetParam().temperature;
  params.top_k = GetParam().top_k;
  params.top_p = GetParam().top_p;
  params.min_p = GetParam().min_p;
  const std::vector<float> row = RandomRow(kVocab, 2, 99);
  const std::vector<double> exact = ExactProbabilities(row, params);
  const std::vector<int> counts = CountDraws(row, params, kDraws);
  std::vector<std::pair<double, int>> bins(1);  // expected and counted; the first one is the pool
  for (size_t id = 0; id < row.size(); ++id) {
    const double expected = exact[id] * kDraws;
    ASSERT_TRUE(exact[id] > 0 || counts[id] == 0) << "id " << id << " was filtered out";
    if (expected >= 5) bins.emplace_back();
    auto& bin = expected >= 5 ? bins.back() : bins.front();
    bin.first += expected;
    bin.second += counts[id];
  }
  if (bins.front().first < 5) bins.erase(bins.begin());
  double chi_square = 0;
  for (const auto& [expected, count] : bins) chi_square += (count - expected) * (count - expected) / expected;
  const double degrees = std::max(1.0, static_cast<double>(bins.size()) - 1);
  EXPECT_LT(chi_square, degrees + 4 * std::sqrt(2 * degrees)) << bins.size() << " bins";
}

INSTANTIATE_TEST_SUITE_P(
    Sampler, Distribution,
    ::testing::Values(Filter{"plain", 1, 0, 1, 0}, Filter{"warm", 0.7f, 0, 1, 0}, Filter{"hot", 3, 0, 1, 0},
                      Filter{"top_k", 1, 5, 1, 0}, Filter{"large_top_k", 1.5f, 120, 1, 0},
                      Filter{"top_p", 1, 0, 0.8f, 0}, Filter{"high_top_p", 2, 0, 0.99f, 0},
                      Filter{"min_p", 1, 0, 1, 0.1f}, Filter{"top_k_top_p", 1, 40, 0.7f, 0},
                      Filter{"top_k_min_p", 1.2f, 60, 1, 0.05f}, Filter{"top_p_min_p", 2, 0, 0.9f, 0.2f},
                      Filter{"all", 1.3f, 100, 0.9f, 0.08f}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Sampler, FiltersKeepTheExactSetOnWideRows) {
  std::mt19937 engine(5);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<float> row = RandomRow(5000, trial % 3 == 0 ? 0.5f : 3.0f, engine());
    if (trial % 2 == 0) {
      for (float& logit : row) logit = std::round(logit);  // many ties
    }
    SamplingParams params;
    params.temperature = 0.3f + static_cast<float>(engine() % 30) / 10;
    params.top_k = trial % 4 == 1 ? static_cast<int32_t>(engine() % 5000) : 0;
    params.top_p = trial % 5 == 2 ? 1.0f : static_cast<float>(engine() % 1000) / 1000;
    params.min_p = trial % 4 == 2 ? static_cast<float>(engine() % 500) / 1000 : 0.0f;
    const std::vector<double> exact = ExactProbabilities(row, params);
    const std::vector<int> counts = CountDraws(row, params, 300);
    // Weights are float, so one id at the cut may fall on either side.
    int outside = 0;
    for (size_t id = 0; id < row.size(); ++id) outside += exact[id] == 0 && counts[id] > 0;
    EXPECT_LE(outside, 1) << "trial " << trial;
    for (size_t id = 0; id < row.size(); ++id) {
      if (exact[id] <= 0.1) continue;
      EXPECT_NEAR(counts[id] / 300.0, exact[id], 0.12) << "trial " << trial;
    }
  }
}

// What a seed gives is part of no library's order of equal or selected elements, and the GPU's too.
TEST(Sampler, DrawsRunInTheOrderOfIds) {
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> row = RandomRow(kVocab, 2, 500 + trial);
    SamplingParams params;
    params.temperature = 1.5f;
    params.top_k = trial % 2 == 0 ? 60 : 0;
    params.top_p = trial % 3 == 0 ? 1.0f : 0.8f;
    params.min_p = trial % 5 == 0 ? 0.02f : 0.0f;
    const std::vector<double> exact = ExactProbabilities(row, params);
    const double goal = UniformDraw(0, static_cast<uint64_t>(trial));
    double reached = 0;
    int32_t expected = 0;
    while (expected < kVocab - 1 && (reached += exact[expected]) <= goal) ++expected;
    // No goal of these lies within rounding of a border.
    EXPECT_EQ(SampleRow(row, params, trial).token, expected) << trial;
  }
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  const std::vector<float> row = RandomRow(kVocab, 3, 21);
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  const double log_sum = std::log(sum);
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });

  SamplingParams params;
  params.temperature = 1.7f;
  params.top_k = 30;
  params.repetition_penalty = 1.3f;
  params.logit_bias = {{order[2], 3.0f}, {order[5], 4.0f}};
  std::sort(params.logit_bias.begin(), params.logit_bias.end());
  TokenHistory history;
  for (int i = 0; i < 10; ++i) history.Add(order[i], true);
  const SamplingParams silent = params;
  for (const int32_t num_top : {0, 1, 7, 20}) {
    params.logprobs = true;
    params.top_logprobs = num_top;
    for (uint64_t i = 0; i < 50; ++i) {
      const SampleResult result = SampleRow(row, params, i, history);
      ASSERT_EQ(result.token, SampleRow(row, silent, i, history).token) << "asking does not change the draw";
      ASSERT_NEAR(result.logprob, row[result.token] - log_sum, 1e-5);
      ASSERT_EQ(result.num_top, num_top);
      for (int32_t t = 0; t < num_top; ++t) {
        ASSERT_EQ(result.top[t].token, order[t]);
        ASSERT_NEAR(result.top[t].logprob, row[order[t]] - log_sum, 1e-5);
      }
    }
  }
}

TEST(Sampler, TopLogprobsOfATinyVocabularyStopAtItsEnd) {
  SamplingParams params;
  params.top_logprobs = 20;
  const SampleResult result = SampleRow({0.5f, -kInf, 0.5f, 0.1f}, params);
  ASSERT_EQ(result.num_top, 3);
  EXPECT_TRUE(result.top[0].token == 0 && result.top[1].token == 2 && result.top[2].token == 3);
}

}  // namespace
}  // namespace weir
