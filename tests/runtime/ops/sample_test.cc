// kSampleRows against the host's Sampler and against a draw in double precision. CUDA column only.
#include "runtime/ops/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/sampler.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

struct Case {
  std::vector<float> row;
  RowParams params;  // its `row` is set by Run
};

std::vector<float> RandomRow(int vocab, double spread, Random* random) {
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& logit : row) logit = static_cast<float>(spread * random->Normal());
  return row;
}

std::vector<float> Rounded(std::vector<float> row) {
  for (float& logit : row) logit = std::round(logit);
  return row;
}

class SampleTest : public ::testing::Test {
 protected:
  // The rows lie in the order of the cases or, `reversed`, against it, `padding` floats apart.
  std::vector<RowSample> Run(const std::vector<Case>& cases, int num_ids = 0, int64_t padding = 0,
                             bool reversed = false) {
    const auto count = static_cast<int64_t>(cases.size());
    const auto vocab = static_cast<int64_t>(cases[0].row.size());
    Guarded logits(DType::kF32, {count, vocab}, padding);
    Guarded params(DType::kI32, {count, sizeof(RowParams) / 4});
    Guarded samples(DType::kI32, {count, sizeof(RowSample) / 4});
    const auto row_of = [&](int64_t i) { return reversed ? count - 1 - i : i; };
    for (int64_t i = 0; i < count; ++i) {
      RowParams p = cases[i].params;
      p.row = static_cast<int32_t>(row_of(i));
      std::memcpy(params.row<int32_t>(i), &p, sizeof(p));
      std::memcpy(logits.row<float>(p.row), cases[i].row.data(), vocab * sizeof(float));
    }
    RunKernel(kSampleRows, {logits, num_ids > 0 ? num_ids : static_cast<int>(vocab), params, samples},
              *device_);
    EXPECT_TRUE(logits.RedZonesIntact() && params.RedZonesIntact() && samples.RedZonesIntact());
    std::vector<RowSample> results(cases.size());
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<void*>(&results[i]), samples.row<int32_t>(i), sizeof(RowSample));
      ExpectOnlySuppressedEdited(cases[i], logits.row<float>(row_of(i)));
    }
    return results;
  }
  RowSample RunOne(const std::vector<float>& row, const RowParams& params) { return Run({{row, params}})[0]; }

  std::unique_ptr<Device> device_ = CreateTestDevice();

 private:
  static void ExpectOnlySuppressedEdited(const Case& c, const float* after) {
    std::vector<float> row = c.row;
    for (int i = 0; i < c.params.num_suppressed; ++i) {
      const int32_t id = c.params.suppressed[i];
      const bool edited = id >= 0 && id < static_cast<int32_t>(row.size()) && after[id] == -kInf;
      if (edited) row[id] = -kInf;
    }
    EXPECT_EQ(std::memcmp(row.data(), after, row.size() * sizeof(float)), 0);
  }
};

SampleResult OnHost(const Case& c, int num_ids = 0) {
  const auto vocab = static_cast<int32_t>(c.row.size());
  Sampler sampler(vocab, num_ids > 0 ? num_ids : vocab);
  SamplingParams params;
  params.temperature = c.params.temperature;
  params.top_k = c.params.top_k;
  params.top_p = c.params.top_p;
  params.min_p = c.params.min_p;
  params.seed = c.params.seed;
  params.logprobs = c.params.logprob != 0;
  std::vector<float> row = c.row;
  return sampler.Sample(row, params, {}, c.params.token_index,
                        {c.params.suppressed, static_cast<size_t>(c.params.num_suppressed)});
}

// What is drawn at `uniform`, by a full sort in double precision.
int32_t ExactDraw(const Case& c, double top_p, double min_p, double uniform) {
  std::vector<int32_t> order(c.row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return c.row[a] > c.row[b]; });
  std::vector<double> weight(c.row.size());
  double total = 0;
  const auto k = c.params.top_k > 0 ? std::min<size_t>(c.params.top_k, order.size()) : order.size();
  order.resize(k);
  for (const int32_t id : order) {
    weight[id] = std::exp((static_cast<double>(c.row[id]) - c.row[order[0]]) / c.params.temperature);
    total += weight[id];
  }
  double mass = 0;
  size_t kept = 0;
  while (kept < order.size()) {
    mass += weight[order[kept++]];
    if (top_p < 1 && mass >= (top_p - 1e-6) * total) break;
  }
  order.resize(kept);
  while (order.size() > 1 && weight[order.back()] < min_p) order.pop_back();
  std::sort(order.begin(), order.end());
  total = 0;
  for (const int32_t id : order) total += weight[id];
  double reached = 0;
  for (const int32_t id : order)
    if ((reached += weight[id]) > uniform * total) return id;
  return order.back();
}

// Whether borders that are moved by what float sums may be off give this token.
bool IsWithinRounding(const Case& c, int32_t token) {
  const double uniform = UniformDraw(c.params.seed, c.params.token_index);
  for (const double p : {0.0, -2e-6, 2e-6})
    for (const double m : {1.0, 1 - 1e-5, 1 + 1e-5})
      for (const double u : {0.0, -2e-6, 2e-6})
        if (token ==
            ExactDraw(c, c.params.top_p < 1 ? c.params.top_p + p : 1.0, c.params.min_p * m, uniform + u))
          return true;
  return false;
}

void ExpectExactDraws(const std::vector<Case>& cases, const std::vector<RowSample>& samples) {
  int off_exact = 0, off_host = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    ASSERT_EQ(samples[i].finite, 1) << i;
    const double uniform = UniformDraw(c.params.seed, c.params.token_index);
    off_exact += samples[i].token != ExactDraw(c, c.params.top_p, c.params.min_p, uniform);
    off_host += samples[i].token != OnHost(c).token;
    EXPECT_TRUE(IsWithinRounding(c, samples[i].token))
        << i << ": " << samples[i].token << ", the host draws " << OnHost(c).token << " of " << c.row.size()
        << "; temperature " << c.params.temperature << " top_k " << c.params.top_k << " top_p "
        << c.params.top_p << " min_p " << c.params.min_p;
  }
  // A few in a million by chance; the ties of rounded rows make none.
  EXPECT_LE(off_exact, 1 + static_cast<int>(cases.size()) / 100);
  EXPECT_LE(off_host, 1 + static_cast<int>(cases.size()) / 100);
}

struct Filter {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
};

RowParams ParamsOf(const Filter& filter, uint64_t seed, uint64_t token_index) {
  RowParams params;
  params.temperature = filter.temperature;
  params.top_k = filter.top_k;
  params.top_p = filter.top_p;
  params.min_p = filter.min_p;
  params.seed = seed;
  params.token_index = token_index;
  return params;
}

class FilterTest : public SampleTest, public ::testing::WithParamInterface<Filter> {};

TEST_P(FilterTest, DrawsAsTheHostDoes) {
  Random random(17);
  const std::vector<int> vocabs = SlowKernels() ? std::vector<int>{5, 127, 512, 2048, 2600}
                                                : std::vector<int>{1, 5, 127, 512, 513, 2048, 2600, 50280};
  for (const int vocab : vocabs) {
    std::vector<Case> cases;
    const int draws = !SlowKernels() ? 60 : vocab < 1000 ? 12 : 4;
    for (int i = 0; i < draws; ++i) {
      std::vector<float> row = RandomRow(vocab, 0.5 + i % 3, &random);
      if (i % 4 == 3) row = Rounded(std::move(row));
      for (int banned = i % 5; banned > 0 && vocab > 5; --banned) row[random.Int(0, vocab - 1)] = -kInf;
      cases.push_back({std::move(row), ParamsOf(GetParam(), 1000 + i % 3, i)});
    }
    SCOPED_TRACE(vocab);
    ExpectExactDraws(cases, Run(cases));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sample, FilterTest,
    ::testing::Values(Filter{"plain", 1, 0, 1, 0}, Filter{"warm", 0.7f, 0, 1, 0}, Filter{"hot", 3, 0, 1, 0},
                      Filter{"top_k_1", 1, 1, 1, 0}, Filter{"top_k_5", 1, 5, 1, 0},
                      Filter{"top_k_120", 1.5f, 120, 1, 0}, Filter{"top_k_1500", 5, 1500, 1, 0},
                      Filter{"top_p_0", 1, 0, 0, 0}, Filter{"top_p", 1, 0, 0.8f, 0},
                      Filter{"hot_top_p", 2, 0, 0.99f, 0}, Filter{"flat_top_p", 50, 0, 0.9f, 0},
                      Filter{"min_p", 1, 0, 1, 0.1f}, Filter{"min_p_1", 1, 0, 1, 1},
                      Filter{"top_k_top_p", 1, 40, 0.7f, 0}, Filter{"large_top_k_top_p", 20, 1200, 0.95f, 0},
                      Filter{"top_k_min_p", 1.2f, 60, 1, 0.05f}, Filter{"top_p_min_p", 2, 0, 0.9f, 0.2f},
                      Filter{"all", 1.3f, 100, 0.9f, 0.08f}),
    [](const auto& test) { return std::string(test.param.name); });

// More of them than the list of candidates holds.
TEST_F(SampleTest, EqualLogitsAreKeptFromTheLowestIdOn) {
  const int vocab = 2500;
  std::vector<float> equal(vocab, -3.5f);
  std::vector<float> two_levels(vocab, 0.0f);
  for (int i = 0; i < vocab; i += 2) two_levels[i] = 1.0f;
  for (int i = 1; i < vocab; i += 4) two_levels[i] = -0.0f;
  std::vector<Case> cases;
  for (const auto& row : {equal, two_levels})
    for (const Filter& filter :
         {Filter{"", 1, 7, 1, 0}, Filter{"", 1, 1300, 1, 0}, Filter{"", 1, 1700, 1, 0},
          Filter{"", 1, 0, 0.5f, 0}, Filter{"", 1, 0, 0.9f, 0}, Filter{"", 1, 1700, 0.9f, 0}})
      for (uint64_t i = 0; i < (SlowKernels() ? 2 : 40); ++i) cases.push_back({row, ParamsOf(filter, 5, i)});
  ExpectExactDraws(cases, Run(cases));
}

TEST_F(SampleTest, TemperatureZeroIsTheLowestArgMax) {
  Random random(3);
  std::vector<Case> cases;
  std::vector<int32_t> expected;
  for (const int first : {0, 1, 127, 511, 512, 1300, 1499}) {
    std::vector<float> row = RandomRow(1500, 1, &random);
    row[first] = row[1499] = 9;
    row[std::min(first + 130, 1499)] = 9;
    RowParams params;
    params.temperature = expected.size() % 2 == 0 ? 0.0f : -0.0f;
    params.top_k = 5;
    params.seed = random.Int(0, 1000);
    cases.push_back({row, params});
    expected.push_back(first);
  }
  cases.push_back({std::vector<float>(1500, -kLargest), cases[0].params});
  expected.push_back(0);
  const std::vector<RowSample> samples = Run(cases);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_TRUE(samples[i].finite == 1 && samples[i].token == expected[i]);
}

TEST_F(SampleTest, ExtremeTemperaturesAreServed) {
  Random random(4);
  std::vector<Case> cases;
  const std::vector<float> row = RandomRow(300, 3, &random);
  for (const float temperature : {1e-45f, 1e-38f, 1e-30f})
    cases.push_back({row, ParamsOf({"", temperature, 0, 1, 0}, 1, cases.size())});
  const size_t cold = cases.size();
  std::vector<float> masked = row;
  masked[5] = -kInf;
  for (const float temperature : {1e30f, kLargest})
    for (const float top_p : {1.0f, 0.9f})
      for (uint64_t i = 0; i < 6; ++i)
        cases.push_back({masked, ParamsOf({"", temperature, 0, top_p, 0}, 1, i)});
  const std::vector<RowSample> samples = Run(cases);
  const auto arg_max = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(samples[i].token, OnHost(cases[i]).token) << i;
    if (i < cold) EXPECT_EQ(samples[i].token, arg_max);
  }
}

TEST_F(SampleTest, NothingIsSampledFromANonFiniteRow) {
  Random random(5);
  std::vector<Case> cases;
  for (const float poison : {kNan, -kNan, kInf}) {
    for (const int at : {0, 63, 511, 512, 599}) {
      for (const int variant : {0, 1, 2, 3}) {
        Case c = {RandomRow(600, 1, &random), {}};
        c.row[at] = poison;
        c.params.temperature = static_cast<float>(variant / 2);
        c.params.logprob = variant == 1;
        c.params.top_k = variant == 3 ? 5 : 0;
        // Suppressing the id must not hide it.
        c.params.num_suppressed = variant % 2;
        c.params.suppressed[0] = at;
        cases.push_back(c);
      }
    }
  }
  cases.push_back({std::vector<float>(600, -kInf), {}});
  const std::vector<RowSample> samples = Run(cases);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_TRUE(samples[i].finite == 0 && samples[i].no_candidate == 0 && samples[i].token == -1) << i;
}

TEST_F(SampleTest, PaddingIsNeverDrawnNorLookedAt) {
  Random random(6);
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 20; ++i) {
    Case c = {RandomRow(128, 1, &random), ParamsOf({"", i % 2 == 0 ? 0.0f : 5.0f, 0, 1, 0}, 9, i)};
    if (i % 3 == 0) c.params.top_k = 110;
    if (i % 3 == 1) c.params.top_p = 0.99f;
    c.row[120] = 50;
    c.row[127] = kNan;
    cases.push_back(c);
  }
  const std::vector<RowSample> samples = Run(cases, 100);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(samples[i].finite == 1 && samples[i].token < 100);
    EXPECT_EQ(samples[i].token, OnHost(cases[i], 100).token);
  }
}

TEST_F(SampleTest, SuppressedIdsAreHeldBack) {
  Random random(7);
  Case c = {RandomRow(300, 1, &random), {}};
  c.row[5] = 30;
  c.row[2] = 29;
  c.row[77] = 10;
  c.params.temperature = 0;
  const std::vector<int32_t> ids = {2, 5, 300, -1, 1'000'000, 5, 5, 2};
  c.params.num_suppressed = static_cast<int32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), c.params.suppressed);
  EXPECT_EQ(RunOne(c.row, c.params).token, 77);
  EXPECT_EQ(RunOne(c.row, {}).token, 5);

  c.row = {1, 2, -kInf, -kInf, -kInf, 3};
  RowSample sample = RunOne(c.row, c.params);
  EXPECT_TRUE(sample.finite == 1 && sample.token == 1);
  c.row = {-kInf, -kInf, 2, -kInf, -kInf, 3};
  sample = RunOne(c.row, c.params);
  EXPECT_TRUE(sample.finite == 0 && sample.no_candidate == 1 && sample.token == -1);
  c.row = std::vector<float>(6, -kInf);
  sample = RunOne(c.row, c.params);
  EXPECT_TRUE(sample.finite == 0 && sample.no_candidate == 0);
}

TEST_F(SampleTest, LogprobsAreTheModelsOwn) {
  Random random(8);
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 12; ++i) {
    Case c = {RandomRow(1111, 3, &random),
              ParamsOf({"", i % 4 == 0 ? 0.0f : 1.7f, i % 3 == 0 ? 30 : 0, i % 5 == 0 ? 0.9f : 1, 0}, 2, i)};
    if (i % 4 == 1) c.params.temperature = 1;
    c.params.num_suppressed = i % 2;
    c.params.suppressed[0] =
        static_cast<int32_t>(std::max_element(c.row.begin(), c.row.end()) - c.row.begin());
    cases.push_back(c);
  }
  const std::vector<RowSample> silent = Run(cases);
  for (Case& c : cases) c.params.logprob = 1;
  const std::vector<RowSample> samples = Run(cases);
  for (Case& c : cases) c.params.target = 1110;
  const std::vector<RowSample> scores = Run(cases);
  Sampler sampler(1111, 1111);
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].params.target = -1;
    EXPECT_EQ(samples[i].token, silent[i].token) << "asking does not change the draw";
    EXPECT_EQ(samples[i].token, OnHost(cases[i]).token);
    EXPECT_NEAR(samples[i].logprob, OnHost(cases[i]).logprob, 1e-5);
    EXPECT_TRUE(scores[i].finite == 1 && scores[i].token == -1);
    EXPECT_NEAR(scores[i].logprob, sampler.ScoreOf(cases[i].row, 1110).logprob, 1e-5);
  }
  cases[0].row[8] = kNan;
  cases[0].params.target = 3;
  EXPECT_EQ(RunOne(cases[0].row, cases[0].params).finite, 0);
}

TEST_F(SampleTest, ATargetsRankIsItsPlaceInAStableSort) {
  Random random(10);
  std::vector<Case> cases;
  for (const int num_ids : {1, 5, 512, 1300}) {
    cases.clear();
    Sampler sampler(num_ids + 3, num_ids);
    for (int i = 0; i < 12; ++i) {
      std::vector<float> row = RandomRow(num_ids + 3, 2, &random);
      if (i % 3 != 0) row = Rounded(std::move(row));
      for (int pad = num_ids; pad < num_ids + 3; ++pad) row[pad] = 90;
      if (i % 4 == 1 && num_ids > 1) row[num_ids / 2] = -kInf;
      Case c = {std::move(row), {}};
      const int32_t ends[] = {0, num_ids - 1, num_ids / 2};
      c.params.target = i < 3 ? ends[i] : static_cast<int32_t>(random.Int(0, num_ids - 1));
      cases.push_back(std::move(c));
    }
    cases.push_back({std::vector<float>(static_cast<size_t>(num_ids) + 3, -3.5f), {}});
    cases.back().params.target = num_ids - 1;
    const std::vector<RowSample> samples = Run(cases, num_ids);
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<float>& row = cases[i].row;
      const int32_t target = cases[i].params.target;
      int32_t rank = 1;
      for (int32_t id = 0; id < num_ids; ++id)
        rank += row[id] > row[target] || (row[id] == row[target] && id < target) ? 1 : 0;
      EXPECT_EQ(samples[i].rank, rank) << num_ids << " " << i;
      EXPECT_EQ(sampler.ScoreOf(row, target).rank, rank) << num_ids << " " << i;
    }
  }
}

// Rows of odd lengths begin at other distances from a 16-byte border wherever they lie.
TEST_F(SampleTest, ARowsResultIsItsOwn) {
  Random random(9);
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 11; ++i) {
    Case c = {RandomRow(1301, 2, &random), ParamsOf({"", 1.3f, 0, 1, 0}, i, i)};
    if (i % 4 == 1) c.params.top_k = 50;
    if (i % 4 == 2) c.params.top_p = 0.9f;
    if (i % 4 == 3) c.params.temperature = 30, c.params.top_p = 0.97f;
    c.params.logprob = 1;
    cases.push_back(c);
  }
  const auto bytes = [](const std::vector<RowSample>& samples) {
    return std::string(reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(RowSample));
  };
  const std::string together = bytes(Run(cases));
  EXPECT_EQ(bytes(Run(cases, 0, 2, true)), together);
  std::string alone;
  for (const Case& c : cases) alone += bytes({RunOne(c.row, c.params)});
  EXPECT_EQ(alone, together);
}

TEST(SampleRows, HasNoCpuColumn) {
  const absl::Status status = RequireColumn(kSampleRows, Backend::kCpu);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace weir
