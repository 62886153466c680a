// The laws of every mixer, over whole decoders of random weights and awkward sizes, written once.
#include <gtest/gtest.h>

#include <ostream>
#include <span>
#include <utility>

#include "runtime/engine/model_step.h"
#include "tests/support/count_allocations.h"
#include "tests/support/model_harness.h"
#include "tests/support/test_column.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

struct Case {
  std::string name;
  TinyModelOptions options;
  int product_form = 0;
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

class Laws : public ::testing::TestWithParam<Case> {
 protected:
  Laws()
      : device_(CreateTestDevice(2)),
        harness_(
            (ChooseProductForm(GetParam().product_form), LoadTinyModel(GetParam().options, *device_).decoder),
            *device_) {}
  ~Laws() override { ChooseProductForm(0); }

  std::vector<std::vector<float>> Alone(const std::vector<int32_t>& tokens) {
    ModelHarness::Sequence sequence = harness_.NewSequence();
    return harness_.Step({{&sequence, tokens}});
  }
  std::vector<int32_t> Tokens(int n, unsigned seed) {
    return RandomTokens(n, harness_.model().vocab_size(), seed);
  }
  double Tolerance() const { return GetParam().options.dtype == DType::kF32 ? 1e-4 : 3e-2; }

  std::unique_ptr<Device> device_;
  ModelHarness harness_;
};

// Law 2. REC-03 asks for the first five ways.
TEST_P(Laws, REC_03_AnySplitGivesTheSameLogitsAndState) {
  const std::vector<int> lengths =
      SlowKernels() ? std::vector<int>{65, 128} : std::vector<int>{100, 63, 64, 65, 127, 128, 129, 200};
  for (const int length : lengths) {
    const std::vector<int32_t> tokens = Tokens(length, static_cast<unsigned>(length));
    ModelHarness::Sequence whole = harness_.NewSequence();
    const auto want = harness_.Step({{&whole, tokens}});
    const auto want_state = harness_.State(whole);
    const std::vector<std::vector<int>> cuts = {{1, 99}, {37, 63}, {64, 36}, {99, 1}, {1}, {2, 3, 62, 1, 64}};
    for (const std::vector<int>& cut : cuts) {
      ModelHarness::Sequence split = harness_.NewSequence();
      const auto got = harness_.Feed(&split, tokens, cut);
      if (harness_.model().prefill_granule() == 1) {  // then cuts change no bit
        EXPECT_EQ(got, want) << "length " << length << ", first cut " << cut[0];
        EXPECT_EQ(harness_.State(split), want_state) << "first cut " << cut[0];
      }
      EXPECT_LE(MaxRelativeError(got, want), Tolerance()) << "length " << length << ", first cut " << cut[0];
      if (!want_state.empty())
        EXPECT_LE(MaxRelativeError(harness_.State(split), want_state), Tolerance()) << "first cut " << cut[0];
    }
  }
}

// Law 3: bit for bit, for prefill and for decode, whoever shares the step and wherever one stands in it.
TEST_P(Laws, BatchMatesNeverChangeABit) {
  const std::vector<int> lengths = {1, 65, 3, 130, 64, 17, 2};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<std::vector<float>>> want;
  for (size_t i = 0; i < lengths.size(); ++i) {
    prompts.push_back(Tokens(lengths[i], 100 + static_cast<unsigned>(i)));
    ModelHarness::Sequence alone = harness_.NewSequence();
    auto rows = harness_.Step({{&alone, prompts[i]}});
    rows.push_back(harness_.Step({{&alone, {5}}})[0]);
    want.push_back(std::move(rows));
  }
  for (const bool reversed : {false, true}) {
    std::vector<ModelHarness::Sequence> sequences;
    for (size_t i = 0; i < lengths.size(); ++i) sequences.push_back(harness_.NewSequence());
    std::vector<size_t> order(lengths.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = reversed ? order.size() - 1 - i : i;
    std::vector<ModelHarness::Run> prefill, decode;
    for (const size_t i : order) {
      prefill.push_back({&sequences[i], prompts[i]});
      decode.push_back({&sequences[i], {5}});
    }
    const auto prefill_rows = harness_.Step(prefill);
    const auto decode_rows = harness_.Step(decode);
    size_t row = 0;
    for (size_t n = 0; n < order.size(); ++n) {
      const auto& expected = want[order[n]];
      for (size_t t = 0; t + 1 < expected.size(); ++t)
        EXPECT_EQ(prefill_rows[row++], expected[t]) << "run " << n << " token " << t;
      EXPECT_EQ(decode_rows[n], expected.back()) << "decode of run " << n;
    }
  }
}

// Law 3, with decoders beside a prefill, and law 4: who is not in the batch does not change.
TEST_P(Laws, REC_11_IdleSlotsAndLateJoinersAreUntouched) {
  ModelHarness::Sequence idle = harness_.NewSequence();
  harness_.Step({{&idle, Tokens(70, 1)}});
  const std::vector<float> idle_state = harness_.State(idle);

  const std::vector<int32_t> prompt = Tokens(40, 2);
  ModelHarness::Sequence alone = harness_.NewSequence();
  harness_.Step({{&alone, prompt}});
  std::vector<std::vector<float>> want;
  for (int i = 0; i < 4; ++i) want.push_back(harness_.Step({{&alone, {7 + i}}})[0]);

  ModelHarness::Sequence first = harness_.NewSequence();
  ModelHarness::Sequence second = harness_.NewSequence();
  harness_.Step({{&first, prompt}});
  EXPECT_EQ(harness_.Step({{&first, {7}}})[0], want[0]);
  EXPECT_EQ(harness_.Step({{&second, Tokens(90, 3)}, {&first, {8}}}).back(), want[1]);
  EXPECT_EQ(harness_.Step({{&first, {9}}, {&second, Tokens(5, 4)}})[0], want[2]);
  EXPECT_EQ(harness_.Step({{&second, {1}}, {&first, {10}}})[1], want[3]);
  EXPECT_EQ(harness_.State(idle), idle_state);
  EXPECT_EQ(harness_.State(first), harness_.State(alone));
}

// Law 4: a reused slot behaves as new.
TEST_P(Laws, AReusedSlotBehavesAsNew) {
  const std::vector<int32_t> tokens = Tokens(80, 5);
  const auto want = Alone(tokens);
  for (int round = 0; round < 3; ++round) {
    ModelHarness::Sequence other = harness_.NewSequence();
    harness_.Step({{&other, Tokens(77 + round, 6)}});
  }
  EXPECT_EQ(Alone(tokens), want);
}

// A short neighbour, a longer one and none: no pad token exists that could reach a state.
TEST_P(Laws, REC_10_APromptDoesNotFeelItsNeighboursLength) {
  const std::vector<int32_t> prompt = Tokens(3, 8);
  const auto want = Alone(prompt);
  for (const int neighbour : {12, 40}) {
    ModelHarness::Sequence a = harness_.NewSequence();
    ModelHarness::Sequence b = harness_.NewSequence();
    const auto got = harness_.Step({{&b, Tokens(neighbour, 9)}, {&a, prompt}});
    for (int t = 0; t < 3; ++t) EXPECT_EQ(got[neighbour + t], want[t]);
  }
}

TEST_P(Laws, REC_05_StepsRepeatBitForBitAndAgreeWithPrefill) {
  const std::vector<int32_t> tokens = Tokens(10, 10);
  std::vector<std::vector<std::vector<float>>> runs;
  for (int round = 0; round < 3; ++round) {
    ModelHarness::Sequence sequence = harness_.NewSequence();
    runs.push_back(harness_.Feed(&sequence, tokens, {1}));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
  EXPECT_LE(MaxRelativeError(Alone(tokens), runs[0]), GetParam().options.dtype == DType::kF32 ? 5e-5 : 3e-2);
}

// Greedy output alone, among others, and beside copies of itself: the same ids in every arrangement.
TEST_P(Laws, REC_08_GreedyOutputIsTheSameInEveryArrangement) {
  const std::vector<std::vector<int32_t>> prompts = {Tokens(5, 50), Tokens(70, 51), Tokens(1, 52),
                                                     Tokens(33, 53)};
  const auto generate = [&](const std::vector<std::vector<int32_t>>& together) {
    std::vector<ModelHarness::Sequence> sequences;
    std::vector<std::vector<int32_t>> ids(together.size());
    std::vector<std::vector<float>> last(together.size());
    for (size_t i = 0; i < together.size(); ++i) {
      sequences.push_back(harness_.NewSequence());
      last[i] = harness_.Step({{&sequences[i], together[i]}}).back();
    }
    for (int step = 0; step < 64; ++step) {
      std::vector<ModelHarness::Run> runs;
      for (size_t i = 0; i < together.size(); ++i) {
        ids[i].push_back(ArgMax(last[i]));
        runs.push_back({&sequences[i], {ids[i].back()}});
      }
      last = harness_.Step(runs);
    }
    return ids;
  };
  std::vector<std::vector<int32_t>> alone;
  for (const auto& prompt : prompts) alone.push_back(generate({prompt})[0]);
  EXPECT_EQ(generate(prompts), alone);
  const auto copies = generate({prompts[1], prompts[1], prompts[1], prompts[1]});
  for (const auto& ids : copies) EXPECT_EQ(ids, alone[1]);
}

// Law 3 for the engine's decode steps, which are padded and, on a GPU, recorded: the bits of a plain step,
// and no slot beside those of the batch changes.
TEST_P(Laws, PaddedAndRecordedDecodeStepsChangeNoBit) {
  EngineModel model;
  model.model = harness_.shared_model();
  model.text = LoadTinyModel(GetParam().options, *device_).text;
  model.limits = {
      .slots = 6, .kv_blocks = harness_.options().kv_blocks, .max_step_tokens = 8, .max_step_seqs = 6};
  const auto step = ModelStep::Create(model, harness_.state(), 6, *device_);
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_TRUE((*step)->recording_failure().ok()) << (*step)->recording_failure();
  std::vector<ModelHarness::Sequence> plain, padded;
  for (unsigned i = 0; i < 3; ++i) {
    plain.push_back(harness_.NewSequence(200));
    harness_.Step({{&plain.back(), Tokens(60 + 3 * static_cast<int>(i), 70 + i)}});
    padded.push_back(harness_.Fork(plain.back(), 200));
  }
  for (const size_t count : {3, 1, 2, 3}) {
    const std::vector<int32_t> tokens = Tokens(static_cast<int>(count), 80 + static_cast<unsigned>(count));
    std::vector<ModelHarness::Run> runs;
    (*step)->batch().Clear();
    RowSampling* const sampling = (*step)->sampling();
    if (sampling != nullptr) sampling->Clear();
    for (size_t i = 0; i < count; ++i) {
      runs.push_back({&plain[i], {tokens[i]}});
      (*step)->batch().AddRun(padded[i].slot.index(), padded[i].position++, std::span(tokens).subspan(i, 1),
                              padded[i].blocks.blocks(), 1);
      if (sampling != nullptr) sampling->AddTarget(static_cast<int>(i), -1);  // the whole row, to the host
    }
    const auto want = harness_.Step(runs);
    ASSERT_TRUE((*step)->Compute().ok());
    for (size_t i = 0; i < count; ++i) {
      const std::span<const float> row = (*step)->Logits(static_cast<int>(i));
      EXPECT_EQ(std::vector<float>(row.begin(), row.end()), want[i]) << "run " << i << " of " << count;
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(harness_.State(padded[i]), harness_.State(plain[i]));
  }
  if (device_->backend() != Backend::kCpu) EXPECT_EQ((*step)->replayed_steps(), 4);
}

// Law 6: once warm, a step allocates nothing, early or late, decode or prefill.
TEST_P(Laws, AStepAllocatesNothing) {
  if (!CountsAllocations()) GTEST_SKIP() << "the sanitizer has its own operator new";
  // What the driver, or the emulation of one, allocates for itself does not count: the device's own memory
  // does.
  const bool on_cpu = device_->backend() == Backend::kCpu;
  ModelHarness::Sequence early = harness_.NewSequence(4096);
  ModelHarness::Sequence late = harness_.NewSequence(4096);
  const std::vector<int32_t> tokens = Tokens(SlowKernels() ? 130 : 2000, 60);
  harness_.Step({{&late, tokens}});
  const int64_t device_bytes = device_->allocated_bytes() + device_->allocated_host_bytes();
  const std::span<const int32_t> all = tokens;
  const auto step = [&](size_t n) {
    const ModelHarness::Slice slices[] = {{&early, all.first(n)}, {&late, all.first(1)}};
    harness_.StepInPlace(slices);
  };
  step(100);
  step(1);
  for (const size_t n : {1, 1, 100, 1}) {
    const AllocationCounter allocations;
    step(n);
    if (on_cpu) EXPECT_EQ(allocations.count(), 0) << n << " tokens";
    EXPECT_EQ(device_->allocated_bytes() + device_->allocated_host_bytes(), device_bytes) << n << " tokens";
  }
}

// Carried-in state, several sequences in one prefill.
TEST_P(Laws, REC_01_PackedPrefillOntoCarriedState) {
  const std::vector<int> appended = {5, 70, 200};
  std::vector<ModelHarness::Sequence> packed;
  std::vector<ModelHarness::Run> runs;
  std::vector<std::vector<float>> want;
  for (unsigned i = 0; i < 3; ++i) {
    ModelHarness::Sequence alone = harness_.NewSequence();
    packed.push_back(harness_.NewSequence());
    harness_.Step({{&alone, Tokens(11, 20 + i)}});
    harness_.Step({{&packed[i], Tokens(11, 20 + i)}});
    for (auto& row : harness_.Step({{&alone, Tokens(appended[i], 30 + i)}})) want.push_back(std::move(row));
  }
  for (unsigned i = 0; i < 3; ++i) runs.push_back({&packed[i], Tokens(appended[i], 30 + i)});
  EXPECT_EQ(harness_.Step(runs), want);
}

// Snapshots of the second and later sequences of a packed prefill, at chunk borders and off them.
TEST_P(Laws, REC_02_StateAfterPackedPrefillIsEachSequencesOwn) {
  std::vector<std::vector<int>> packs = {{130, 200, 300}};
  if (!SlowKernels()) packs.insert(packs.end(), {{500, 700, 384}, {256, 300, 400}});
  for (const std::vector<int>& lengths : packs) {
    std::vector<ModelHarness::Sequence> packed;
    std::vector<ModelHarness::Run> runs;
    for (size_t i = 0; i < lengths.size(); ++i) packed.push_back(harness_.NewSequence());
    for (size_t i = 0; i < lengths.size(); ++i)
      runs.push_back({&packed[i], Tokens(lengths[i], 40 + static_cast<unsigned>(i))});
    harness_.Step(runs);
    for (size_t i = 0; i < lengths.size(); ++i) {
      ModelHarness::Sequence alone = harness_.NewSequence();
      harness_.Step({{&alone, runs[i].tokens}});
      EXPECT_EQ(harness_.State(packed[i]), harness_.State(alone)) << "sequence " << i;
      EXPECT_EQ(harness_.Step({{&packed[i], {3}}}), harness_.Step({{&alone, {3}}})) << "sequence " << i;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::pair<const char*, const char*> mixers[] = {{"linear_attention", "Linear"},
                                                        {"performer", "Performer"},
                                                        {"mamba2", "Mamba2"},
                                                        {"softmax", "Softmax"}};
  for (const auto& [mixer, name] : mixers) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      TinyModelOptions options;
      options.mixer = mixer;
      options.dtype = dtype;
      cases.push_back({std::string(name) + (dtype == DType::kF32 ? "F32" : "BF16"), options});
      if (dtype == DType::kF32 || (SlowKernels() && mixer != std::string_view("mamba2"))) continue;
      options.served = DType::kI8;
      cases.push_back({std::string(name) + "Int8", options});
    }
    TinyModelOptions grouped;
    grouped.mixer = mixer;
    grouped.num_heads = 6;
    grouped.num_kv_heads = 2;
    grouped.tied = false;
    grouped.conv_and_gate = false;
    grouped.biases = true;
    cases.push_back({std::string(name) + "GroupedPlainUntied", grouped});
  }
  for (int form = 1; form < NumProductForms(); ++form) {
    TinyModelOptions options;
    options.mixer = "mamba2";
    options.dtype = DType::kBF16;
    options.biases = true;
    options.num_layers = 1;
    cases.push_back({"Mamba2BF16Cublas", options, form});
  }
  return cases;
}

std::vector<Case> MambaCases() {
  TinyModelOptions options;
  options.mixer = "mamba";
  std::vector<Case> cases = {{"MambaF32", options}};
  options.dtype = DType::kBF16;
  cases.push_back({"MambaBF16", options});
  if (!SlowKernels()) {
    options.served = DType::kI8;
    cases.push_back({"MambaInt8", options});
    options.served.reset();
  }
  // Whole vectors, and what trained models have: 16 states of a channel.
  options.dtype = DType::kF32;
  options.mamba.d_inner = 128;
  options.mamba.state_dim = 16;
  options.mamba.bias = true;
  options.tied = false;
  cases.push_back({"MambaWholeVectorsUntied", options});
  options.mamba = {.d_inner = 65, .state_dim = 1, .dt_rank = 1, .conv_bias = false};
  options.conv_size = 2;
  cases.push_back({"MambaNarrow", options});
  options.conv_size = 1;
  cases.push_back({"MambaWithoutWindow", options});
  TinyModelOptions falcon;
  falcon.mixer = "falcon_mamba";
  cases.push_back({"FalconMambaF32", falcon});
  falcon.dtype = DType::kBF16;
  cases.push_back({"FalconMambaBF16", falcon});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Mamba, Laws, ::testing::ValuesIn(MambaCases()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Mixers, Laws, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weir::testing
