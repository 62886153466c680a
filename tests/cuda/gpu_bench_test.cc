// weir-gpu-bench (tests/bench/gpu) over the emulated device: that every row runs, that what it counts is
// right, and that a row that could not be measured never shows a figure. Its times mean nothing here.
#include "tests/bench/gpu/gpu_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "fmt/format.h"
#include "runtime/ops/matmul/cublas_check.h"
#include "tests/cuda/emulator/emulator.h"

namespace weir::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuBenchRun : public ::testing::Test {
 protected:
  GpuBenchRun() : values_(std::tmpfile()), table_(std::tmpfile()), report_(table_, values_) {
    emulator::Options().cublaslt = true;
    matmul::SetMaxCublasRowsForTest(5);  // checked in no time
    options_.tiny = true;
    options_.seconds = 1e6;
  }
  ~GpuBenchRun() override {
    matmul::SetMaxCublasRowsForTest(0);
    std::fclose(values_);
    std::fclose(table_);
  }

  int Run() { return RunGpuBench(*device_, options_, report_); }
  static std::vector<std::string> Lines(std::FILE* file) {
    std::rewind(file);
    std::vector<std::string> lines(1);
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
      if (c == '\n')
        lines.emplace_back();
      else
        lines.back().push_back(static_cast<char>(c));
    }
    lines.pop_back();
    return lines;
  }

  const std::unique_ptr<Device> device_ = *CreateDevice("cuda:0", 1);
  GpuBenchOptions options_;
  std::FILE* const values_;
  std::FILE* const table_;
  GpuReport report_;
};

// Against numbers worked out by hand.
void ExpectCountsByHand(const std::vector<GpuRow>& all) {
  std::map<std::string, const GpuRow*> rows;
  for (const GpuRow& row : all) rows.try_emplace(row.name, &row);
  // 3 sessions: 3 states of 64 x 64 and z of 64 in f32, three trips; q, o of 9 heads, k, v of 3.
  EXPECT_EQ(rows.at("recurrence step, linear attention")->bytes, 3 * (3 * 4160 * 4 * 3 + 24 * 64 * 4));
  // 24 states of 128 x 64, two trips; q, k of one head, v, o and the decay of 24.
  EXPECT_EQ(rows.at("recurrence step, mamba2")->bytes, 24 * 8192 * 4 * 2 + (2 * 128 + 2 * 1536 + 24) * 4);
  // 2 sessions: 1536 x 16 read and written, u, dt, z, y of 1536, B and C of 16.
  EXPECT_EQ(rows.at("selective scan step")->bytes, 2 * (196608 + 24576 + 128));
  // 2 sessions at 300: keys and values of 3 heads of 64 in bf16, q and o of 9 heads in f32.
  EXPECT_EQ(rows.at("flash decode")->bytes, 2 * (300 * 768 + 4608));
  // 2 matrices: 40 columns of 72 and a scale each, a row of x and one of y.
  EXPECT_EQ(rows.at("product, int8")->bytes, 2 * (40 * (72 + 4) + 4 * (72 + 40)));
  // 130 tokens: 2 products of 64 columns for 9 heads over 8515 pairs, multiply-adds twice.
  EXPECT_EQ(rows.at("flash prefill")->operations, 8515.0 * 9 * 64 * 4);
  // 2 x 70 tokens, 65 / 2 keys met on average by 24 heads of 64 that share 128 columns of q and k.
  EXPECT_EQ(rows.at("chunked recurrence, mamba2")->operations,
            140.0 * (65 * 128 + 24 * (65 * 64 + 2 * 128 * 64) + 24 * 2 * 128 * 64));
}

TEST_F(GpuBenchRun, EveryRowIsMeasured) {
  EXPECT_EQ(Run(), 0);
  std::set<std::string> names;
  for (const GpuRow& row : report_.rows()) {
    names.insert(row.name);
    EXPECT_EQ(row.skipped, "") << row.name;
    EXPECT_GT(row.seconds, 0) << row.name;
    EXPECT_GT(row.bytes + row.operations, 0) << row.name;
    EXPECT_FALSE(row.counted.empty()) << row.name;
  }
  std::set<std::string> expected = {"copy within the device",
                                    "bf16 product, own kernels",
                                    "recurrence step, linear attention",
                                    "recurrence step, performer",
                                    "recurrence step, mamba2",
                                    "selective scan step",
                                    "flash decode",
                                    "short convolution step",
                                    "rms norm",
                                    "gated rms norm",
                                    "rope",
                                    "swiglu",
                                    "elu plus one",
                                    "performer's features",
                                    "discretize",
                                    "skip",
                                    "embedding",
                                    "kv write",
                                    "sample, arg-max",
                                    "sample, top-p 0.95",
                                    "product, as served",
                                    "product, own kernels",
                                    "product, int8",
                                    "product, cuBLASLt",
                                    "chunked recurrence, linear attention",
                                    "chunked recurrence, performer",
                                    "chunked recurrence, mamba2",
                                    "flash prefill",
                                    "selective scan",
                                    "short convolution",
                                    "prefill, linear_attention",
                                    "prefill, softmax"};
  for (const char* const family : {"linear_attention", "performer", "mamba", "mamba2", "softmax"})
    expected.insert(fmt::format("decode, {}", family));
  const auto is_cublaslt = [](const std::string& name) {
    return name.starts_with("bf16 product, cuBLASLt ");
  };
  EXPECT_EQ(std::erase_if(names, is_cublaslt), 1u);
  EXPECT_EQ(names, expected);
  ExpectCountsByHand(report_.rows());

  // The table says the same: nine columns a row, and only measured ones.
  size_t rows = 0;
  for (const std::string& line : Lines(table_)) {
    if (!line.starts_with("| ") || line.starts_with("| what")) continue;
    ++rows;
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 10) << line;
  }
  EXPECT_EQ(rows, report_.rows().size());
  for (const std::string& line : Lines(values_))
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), 6) << line;
  EXPECT_EQ(Lines(values_).size(), rows);
}

TEST_F(GpuBenchRun, WithoutTimeEveryRowIsSkipped) {
  options_.seconds = 0;
  EXPECT_EQ(Run(), 0);
  EXPECT_GT(report_.rows().size(), 40u);
  for (const GpuRow& row : report_.rows()) {
    EXPECT_EQ(row.skipped, "skipped: no time left") << row.name;
    EXPECT_EQ(row.seconds, 0) << row.name;
  }
}

TEST_F(GpuBenchRun, WithoutMemoryRowsAreSkippedAndFailNothing) {
  emulator::Options().total_memory = size_t{14} << 20;
  EXPECT_EQ(Run(), 0);
  size_t skipped = 0;
  for (const GpuRow& row : report_.rows()) {
    if (row.skipped.empty()) continue;
    ++skipped;
    EXPECT_EQ(row.skipped, "skipped: does not fit") << row.name;
  }
  EXPECT_GT(skipped, 5u);
  EXPECT_LT(skipped, report_.rows().size());
}

TEST_F(GpuBenchRun, WithoutCublasLtFloorsAreAtTheRateOfOwnProducts) {
  emulator::Options().cublaslt = false;
  options_.only = "product, own kernels";
  EXPECT_EQ(Run(), 0);
  ASSERT_GT(report_.rows().size(), 4u);
  EXPECT_EQ(report_.rows()[1].name, "bf16 product, cuBLASLt");
  EXPECT_EQ(report_.rows()[1].skipped, "not found");
  const GpuRow& own = report_.rows()[2];
  EXPECT_EQ(own.name, "bf16 product, own kernels");
  GpuLimits limits;
  limits.matrix_rate = own.operations / own.seconds;
  EXPECT_DOUBLE_EQ(own.Share(limits), 1.0);
  EXPECT_THAT(Lines(table_), ::testing::Contains(HasSubstr("at the rate of Weir's own product")));
}

TEST_F(GpuBenchRun, ALostDeviceShowsNoFigures) {
  emulator::FailKernel(6, cudaErrorIllegalAddress);
  EXPECT_GT(Run(), 30);
  size_t failed = 0;
  bool lost = false;
  for (const GpuRow& row : report_.rows()) {
    lost = lost || !row.skipped.empty();
    if (!lost) continue;
    EXPECT_THAT(row.skipped, StartsWith("failed: ")) << row.name;
    EXPECT_EQ(row.seconds, 0) << row.name;
    ++failed;
  }
  EXPECT_GT(failed, 30u);
}

}  // namespace
}  // namespace weir::bench
