// The emulator itself: right kernels pass in every schedule and give right results; each known mistake is
// seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda/device_array.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/emulator/memory_hooks.h"
#include "tests/cuda/emulator/sanitizer.h"
#include "tests/cuda/emulator_test_kernels.h"

namespace weir {
namespace {

using emulator::HasMemoryChecker;
using emulator::kAddressSanitizer;
using emulator::ReportKind;
using emulator::Schedule;

std::vector<float> Iota(int n) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

std::vector<float> Reversed(std::vector<float> values, size_t piece) {
  for (size_t i = 0; i < values.size(); i += piece)
    std::reverse(values.begin() + static_cast<std::ptrdiff_t>(i),
                 values.begin() + static_cast<std::ptrdiff_t>(i + piece));
  return values;
}

// A report of this kind that says `text`. All reports, and the error that came with them, are then forgotten.
testing::AssertionResult Reported(ReportKind kind, const std::string& text = "") {
  const std::vector<emulator::Report> reports = emulator::Reports();
  emulator::ClearReports();
  emulator::ResetDevices();
  std::string others;
  for (const emulator::Report& report : reports) {
    if (report.kind == kind && report.text.find(text) != std::string::npos)
      return testing::AssertionSuccess();
    others += "\n(" + std::string(emulator::ReportName(report.kind)) + ") " + report.text;
  }
  return testing::AssertionFailure() << "no report '" << emulator::ReportName(kind) << "' with '" << text
                                     << "'; got" << (others.empty() ? " none" : others);
}

testing::AssertionResult Reported(std::initializer_list<ReportKind> kinds) {
  const std::vector<emulator::Report> reports = emulator::Reports();
  emulator::ClearReports();
  emulator::ResetDevices();
  for (const emulator::Report& report : reports)
    if (std::find(kinds.begin(), kinds.end(), report.kind) != kinds.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << reports.size() << " reports, none of the kinds";
}

// Runs `body` once in each schedule.
template <class Body>
void InEverySchedule(Body body) {
  for (const Schedule schedule : emulator::kSchedules) {
    emulator::Options().schedule = schedule;
    for (const uint64_t seed : {1, 2, 3}) {
      if (seed > 1 && schedule != Schedule::kRandom) break;
      emulator::Options().seed = seed;
      SCOPED_TRACE(testing::Message() << "schedule " << static_cast<int>(schedule) << " seed " << seed);
      body();
    }
  }
}

// In how many schedules a run of `launch` leaves `want` in `out`; what it reports is forgotten.
template <class Launch>
int SchedulesThatAreRight(const DeviceArray<float>& out, const std::vector<float>& want, Launch launch) {
  int right = 0;
  InEverySchedule([&] {
    launch();
    cudaDeviceSynchronize();
    emulator::ResetDevices();
    right += out.Read() == want;
  });
  emulator::ClearReports();
  return right;
}

// ---- right kernels

TEST(Emulator, BarriersAndSharedMemory) {
  const std::vector<float> values = Iota(192);
  InEverySchedule([&] {
    const DeviceArray<float> in(values), out(values.size());
    LaunchReverse(in.data(), out.data(), 3, Bug::kNone, nullptr);
    EXPECT_EQ(out.Read(), Reversed(values, 64));
  });
}

TEST(Emulator, AsynchronousCopies) {
  const std::vector<float> values = Iota(256);
  InEverySchedule([&] {
    const DeviceArray<float> in(values), out(values.size());
    LaunchAsyncReverse(in.data(), out.data(), Bug::kNone, nullptr);
    EXPECT_EQ(out.Read(), Reversed(values, 128));
  });
}

TEST(Emulator, SumsOfWarps) {
  const std::vector<float> values = Iota(96);
  InEverySchedule([&] {
    const DeviceArray<float> in(values), out(3), tree(1);
    LaunchWarpSum(in.data(), out.data(), 3, nullptr);
    LaunchSharedTree(in.data(), tree.data(), true, nullptr);
    EXPECT_EQ(out.Read(), (std::vector<float>{528, 1552, 2576}));
    EXPECT_EQ(tree.Read()[0], 528.0f);
  });
}

TEST(Emulator, VotesAndHalfWarps) {
  InEverySchedule([&] {
    const DeviceArray<unsigned> out(64 * 7);
    LaunchVotes(out.data(), nullptr);
    const std::vector<unsigned> got = out.Read();
    for (unsigned t = 0; t < 64; ++t) {
      const unsigned* const o = &got[t * 7];
      EXPECT_EQ(o[0], t ^ 8u);
      EXPECT_EQ(o[1], (t & 16) != 0 ? (t % 16 == 0 ? t : t - 1) : (t % 16 == 15 ? t : t + 1));
      EXPECT_EQ(o[2], t < 32 ? 0x49249249u : 0x92492492u);
      EXPECT_EQ(o[3], 40u);
      EXPECT_EQ(o[4], t < 32 ? 31u : 63u);
      EXPECT_EQ(o[5], t < 32 ? 1u : 0u);
      EXPECT_EQ(o[6], t < 32 ? 1u : 0u);
    }
  });
}

TEST(Emulator, AtomicsAndTheLastBlock) {
  const std::vector<float> values = Iota(160);
  InEverySchedule([&] {
    const DeviceArray<float> in(values), partial(5), out(1);
    const DeviceArray<unsigned> done(std::vector<unsigned>{0});
    const DeviceArray<int> count(std::vector<int>{0});
    LaunchLastBlockSum(in.data(), partial.data(), out.data(), done.data(), 5, nullptr);
    LaunchCount(count.data(), 7, true, nullptr);
    EXPECT_EQ(out.Read()[0], 12880.0f);
    EXPECT_EQ(count.Read()[0], 7);
  });
}

// Small integers are exact in bfloat16 and their products in float.
TEST(Emulator, MatrixLanesHoldWhatTheManualSays) {
  const auto bf16 = [](int value) {
    const auto f = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &f, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  };
  int a[16][16], b[16][8];
  std::vector<uint16_t> a_bits, a_turned_bits, b_bits;
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) a[i][k] = (i * 16 + k) * 7 % 13 - 6;
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 8; ++j) b[k][j] = (k * 8 + j) * 5 % 11 - 5;
  for (int i = 0; i < 256; ++i) {
    a_bits.push_back(bf16(a[i / 16][i % 16]));
    a_turned_bits.push_back(bf16(a[i % 16][i / 16]));
  }
  for (int i = 0; i < 128; ++i) b_bits.push_back(bf16(b[i % 16][i / 16]));
  std::vector<float> want(128, 0.0f);
  for (int i = 0; i < 128; ++i)
    for (int k = 0; k < 16; ++k)
      want[static_cast<size_t>(i)] += static_cast<float>(a[i / 8][k] * b[k][i % 8]);
  InEverySchedule([&] {
    const DeviceArray<uint16_t> da(a_bits), da_turned(a_turned_bits), db(b_bits);
    const DeviceArray<float> d(128), d_turned(128);
    LaunchMma(da.data(), db.data(), d.data(), false, nullptr);
    LaunchMma(da_turned.data(), db.data(), d_turned.data(), true, nullptr);
    EXPECT_EQ(d.Read(), want);
    EXPECT_EQ(d_turned.Read(), want);
  });
}

TEST(Emulator, Arithmetic) {
  const std::vector<float> x = {0.3f, 1.0f, 1.75f, 9.1f};
  const DeviceArray<float> in(x), out(x.size() * 8);
  LaunchMath(in.data(), out.data(), static_cast<int>(x.size()), nullptr);
  const std::vector<float> got = out.Read();
  for (size_t i = 0; i < x.size(); ++i) {
    const float* const o = &got[i * 8];
    const double v = x[i];
    EXPECT_NEAR(o[0], std::exp(v), 1e-5 * std::exp(v));
    EXPECT_NEAR(o[1], std::log2(v) + std::log1p(v), 1e-5);
    EXPECT_NEAR(o[2], 0.0, 1e-6);
    EXPECT_EQ(o[3], std::fma(x[i], x[i], -x[i] * x[i]));
    EXPECT_NEAR(o[4], v, v / 256);
    EXPECT_NEAR(o[5], std::max(v, 1.0) + std::exp2(v) + std::exp(v), 1e-2);
    EXPECT_EQ(o[6], (x[i] - 1.0f) / (x[i] + 1.0f));
    EXPECT_EQ(o[7], x[i]);
  }
}

// ---- known mistakes

TEST(EmulatorSees, AMissingBarrier) {
  const std::vector<float> values = Iota(64);
  const DeviceArray<float> in(values), out(values.size());
  const auto launch = [&] { LaunchReverse(in.data(), out.data(), 1, Bug::kNoBarrier, nullptr); };
  EXPECT_LT(SchedulesThatAreRight(out, Reversed(values, 64), launch), 6);
  if (!HasMemoryChecker()) return;
  InEverySchedule([&] {
    launch();
    cudaDeviceSynchronize();
    EXPECT_TRUE(Reported({ReportKind::kRace, ReportKind::kUninitialised}));
  });
}

TEST(EmulatorSees, AMissingSyncwarp) {
  const std::vector<float> values = Iota(32);
  const DeviceArray<float> in(values), out(1);
  const auto launch = [&] { LaunchSharedTree(in.data(), out.data(), false, nullptr); };
  EXPECT_LT(SchedulesThatAreRight(out, {528.0f}, launch), 6);
  if (!HasMemoryChecker()) return;
  InEverySchedule([&] {
    launch();
    cudaDeviceSynchronize();
    EXPECT_TRUE(Reported({ReportKind::kRace, ReportKind::kUninitialised}));
  });
}

TEST(EmulatorSees, ADivergentBarrier) {
  const DeviceArray<float> in(Iota(64)), out(64);
  InEverySchedule([&] {
    LaunchReverse(in.data(), out.data(), 1, Bug::kDivergentBarrier, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    EXPECT_TRUE(Reported(ReportKind::kBarrier, "divergent barrier"));
  });
}

TEST(EmulatorSees, AnExitBeforeABarrier) {
  const DeviceArray<float> in(Iota(64)), out(64);
  InEverySchedule([&] {
    LaunchReverse(in.data(), out.data(), 1, Bug::kExitBeforeBarrier, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    EXPECT_TRUE(Reported(ReportKind::kBarrier, "32 of 64 threads"));
  });
}

TEST(EmulatorSees, AMaskThatNamesALaneThatReturned) {
  const DeviceArray<float> out(32);
  InEverySchedule([&] {
    LaunchShuffleAfterReturn(out.data(), 20, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    EXPECT_TRUE(Reported(ReportKind::kWarpMask, "return"));
  });
}

TEST(EmulatorSees, SharedMemoryOutOfBounds) {
  const DeviceArray<float> in(Iota(64)), out(64);
  const auto run = [&] {
    LaunchReverse(in.data(), out.data(), 1, Bug::kSharedOutOfBounds, nullptr);
    return cudaDeviceSynchronize();
  };
  if (kAddressSanitizer) {
    EXPECT_DEATH(run(), "out of bounds|AddressSanitizer");
    return;
  }
  EXPECT_EQ(run(), cudaErrorIllegalAddress);
  EXPECT_TRUE(Reported(ReportKind::kSharedBounds, "0 bytes past the end of a piece of 256 bytes"));
}

TEST(EmulatorSees, GlobalMemoryOutOfBounds) {
  const DeviceArray<float> in(Iota(100)), out(100);
  const auto write = [&](int64_t index) {
    LaunchWriteAt(out.data(), index, nullptr);
    return cudaDeviceSynchronize();
  };
  const auto read = [&](int64_t index) {
    LaunchReadAt(in.data(), index, out.data(), nullptr);
    return cudaDeviceSynchronize();
  };
  // A page away, nothing is mapped; one element away, only the end's bytes are watched.
  for (const int64_t index : {int64_t{-1}, int64_t{1024}, int64_t{1} << 33}) {
    EXPECT_EQ(write(index), cudaErrorIllegalAddress);
    EXPECT_TRUE(Reported(ReportKind::kGlobalBounds, "emulator_test_kernels.cu")) << index;
    EXPECT_EQ(read(index), cudaErrorIllegalAddress);
    EXPECT_TRUE(Reported(ReportKind::kGlobalBounds, "emulator_test_kernels.cu")) << index;
  }
  if (kAddressSanitizer) {
    EXPECT_DEATH(write(100), "AddressSanitizer");
    EXPECT_DEATH(read(100), "AddressSanitizer");
    return;
  }
  EXPECT_EQ(write(100), cudaErrorIllegalAddress);
  EXPECT_TRUE(
      Reported(ReportKind::kGlobalBounds, HasMemoryChecker() ? "emulator_test_kernels.cu" : "past the end"));
  if (!HasMemoryChecker()) return;
  EXPECT_EQ(read(100), cudaErrorIllegalAddress);
  EXPECT_TRUE(Reported(ReportKind::kGlobalBounds, "emulator_test_kernels.cu"));
}

TEST(EmulatorSees, UseAfterFree) {
  const DeviceArray<float> out(1);
  float* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 4096), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  LaunchReadAt(freed, 3, out.data(), nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_TRUE(Reported(ReportKind::kGlobalBounds, "freed"));
  EXPECT_EQ(cudaFree(freed), cudaErrorInvalidValue);
  EXPECT_TRUE(Reported(ReportKind::kApi, "no live allocation"));
}

TEST(EmulatorSees, ANullPointerInAKernel) {
  const DeviceArray<float> out(1);
  LaunchReadAt(nullptr, 3, out.data(), nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_TRUE(Reported(ReportKind::kHostMemory, "emulator_test_kernels.cu"));
}

// A large block that was left in the middle of things, then a small one, then a large one.
TEST(EmulatorSees, NothingInBlocksAfterOneThatWasAbandoned) {
  const DeviceArray<float> in(Iota(64)), out(64);
  LaunchReverse(in.data(), out.data(), 1, Bug::kDivergentBarrier, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_TRUE(Reported(ReportKind::kBarrier));
  LaunchShuffleAfterReturn(out.data(), 32, nullptr);  // nobody returns early
  LaunchReverse(in.data(), out.data(), 1, Bug::kNone, nullptr);
  EXPECT_EQ(out.Read(), Reversed(Iota(64), 64));
}

TEST(EmulatorSees, AHostPointerInAKernel) {
  if (!HasMemoryChecker()) GTEST_SKIP() << "only the memory checker sees it";
  const std::vector<float> host = Iota(8);
  const DeviceArray<float> out(1);
  LaunchReadAt(host.data(), 3, out.data(), nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_TRUE(Reported(ReportKind::kHostMemory, "emulator_test_kernels.cu"));
}

TEST(EmulatorSees, AMisalignedVector) {
  const DeviceArray<float> in(Iota(8)), out(1);
  const auto run = [&] {
    LaunchReadVector(in.data(), 1, out.data(), nullptr);
    return cudaDeviceSynchronize();
  };
  if (kAddressSanitizer) {
    EXPECT_DEATH(run(), "misaligned");
    return;
  }
  EXPECT_EQ(run(), cudaErrorMisalignedAddress);
  EXPECT_TRUE(Reported(ReportKind::kMisaligned, "emulator_test_kernels.cu"));
}

TEST(EmulatorSees, ARaceBetweenBlocks) {
  if (!HasMemoryChecker()) GTEST_SKIP() << "only the memory checker sees it";
  const DeviceArray<int> count(std::vector<int>{0});
  LaunchCount(count.data(), 2, false, nullptr);
  cudaDeviceSynchronize();
  EXPECT_TRUE(Reported(ReportKind::kRace, "another block"));
}

TEST(EmulatorSees, UninitialisedSharedMemory) {
  const DeviceArray<float> in(Iota(64)), out(64);
  LaunchReverse(in.data(), out.data(), 1, Bug::kUninitialisedShared, nullptr);
  cudaDeviceSynchronize();
  if (HasMemoryChecker()) EXPECT_TRUE(Reported(ReportKind::kUninitialised, "emulator_test_kernels.cu"));
  EXPECT_TRUE(std::isnan(out.Read()[63 - 7]));
}

TEST(EmulatorSees, AnAsynchronousCopyThatNobodyWaitsFor) {
  const std::vector<float> values = Iota(256);
  for (const Bug bug : {Bug::kNoCopyWait, Bug::kNoBarrierBeforeReuse}) {
    const DeviceArray<float> in(values), out(values.size());
    const auto launch = [&] { LaunchAsyncReverse(in.data(), out.data(), bug, nullptr); };
    EXPECT_LT(SchedulesThatAreRight(out, Reversed(values, 128), launch), 6);
    if (!HasMemoryChecker()) continue;
    InEverySchedule([&] {
      launch();
      cudaDeviceSynchronize();
      EXPECT_TRUE(Reported({ReportKind::kRace, ReportKind::kUninitialised}));
    });
  }
}

TEST(EmulatorSees, FreshMemoryIsNaN) {
  const DeviceArray<float> fresh(1000);
  for (const float value : fresh.Read()) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace weir
