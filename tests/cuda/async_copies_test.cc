// Speed that results do not show: that kernels wait for the copies that they are about to use and not for
// those that follow, and that sequences which decode together do so in one wave.
#include "runtime/ops/attention/attention_scratch.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/runtime/ops/attention_case.h"

namespace weir {
namespace {

// Of the waits for copies while sequences of `length` tokens have their last `count` attended to, the share
// that left the next copies on their way.
double OverlappedShare(DType pool, int length, int count) {
  Sequences s({1, 1, 64}, pool, {length});
  s.WriteAll();
  const emulator::CopyWaits before = emulator::CopyWaitsSoFar();
  s.Attend({{0, length - count, count}});
  const emulator::CopyWaits after = emulator::CopyWaitsSoFar();
  return static_cast<double>(after.overlapped - before.overlapped) /
         static_cast<double>(after.all - before.all);
}

// A step waits for its keys while its values come, and for its values while the next step's keys come; the
// last step has nothing to follow its values.
TEST(AsyncCopies, FlashAttentionBringsKeysWhileItUsesValuesAndTheOtherWayRound) {
  for (const DType pool : {DType::kF32, DType::kF16}) {
    // One piece of four steps.
    EXPECT_DOUBLE_EQ(OverlappedShare(pool, 256, 1), 7.0 / 8) << DTypeName(pool);
    // Two tiles of 64 tokens, of three and four steps.
    EXPECT_DOUBLE_EQ(OverlappedShare(pool, 256, 128), (5.0 + 7) / (6 + 8)) << DTypeName(pool);
  }
}

// As in a recorded step: the host knows only how far the block tables reach, here 384 positions, two pieces
// of which the second is a half.
TEST(AttentionScratch, SequencesThatItIsMeantForAreOneWave) {
  constexpr int kSeqs = 70;
  Sequences s({1, 1, 4}, DType::kF32, std::vector<int64_t>(kSeqs, 320));
  s.set_tell_positions(false);
  s.set_scratch_positions(AttentionScratchPositions(320 + kKvBlockTokens, kSeqs));
  std::vector<SeqRun> last;
  for (int seq = 0; seq < kSeqs; ++seq) last.push_back({seq, 319, 1});
  const uint64_t before = emulator::KernelsRun();
  s.Attend(last);
  EXPECT_EQ(emulator::KernelsRun() - before, static_cast<uint64_t>(2 * NumSchedules()))
      << "one of pieces, one of their sums";
}

}  // namespace
}  // namespace weir
