#include "runtime/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

Scheduler Make(const SchedulerLimits& limits) {
  absl::StatusOr<Scheduler> scheduler = Scheduler::Create(limits);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *scheduler;
}

double CostOf(const SchedulerLimits& limits, int64_t position, int64_t num_tokens) {
  double cost = 0;
  for (int64_t p = position; p < position + num_tokens; ++p) {
    cost += limits.flops_per_token + static_cast<double>(p) * limits.flops_per_token_and_position;
  }
  return cost;
}

SeqView Decoder(int index, int64_t position, uint64_t arrival) {
  return {.index = index, .position = position, .pending = 1, .generating = true, .arrival = arrival};
}

SeqView Prompt(int index, int64_t pending, uint64_t arrival, int64_t position = 0) {
  return {.index = index, .position = position, .pending = pending, .generating = true, .arrival = arrival};
}

// Feeds what the plan says; decoded sequences keep one token pending.
void Apply(const StepPlan& plan, std::vector<SeqView>* seqs) {
  for (const ScheduledRun& run : plan.runs) {
    SeqView& seq = (*seqs)[run.index];
    seq.position += run.num_tokens;
    if (!run.decode) seq.pending -= run.num_tokens;
  }
}

int TokensOf(const StepPlan& plan, int index) {
  for (const ScheduledRun& run : plan.runs) {
    if (run.index == index) return run.num_tokens;
  }
  return 0;
}

TEST(FeedableUntil, GeneratingFeedsAllButTheLastToken) {
  EXPECT_EQ(FeedableUntil(0, 1, true, 64), 0);
  EXPECT_EQ(FeedableUntil(0, 100, true, 64), 99);
  EXPECT_EQ(FeedableUntil(130, 1, true, 64), 130);
  EXPECT_EQ(FeedableUntil(130, 7, true, 64), 136);
}

TEST(FeedableUntil, AppendOnlyFeedsWholeChunksBeforeTheFinalToken) {
  EXPECT_EQ(FeedableUntil(0, 63, false, 64), 0);
  EXPECT_EQ(FeedableUntil(0, 64, false, 64), 0) << "the chunk holds the final token";
  EXPECT_EQ(FeedableUntil(0, 65, false, 64), 64);
  EXPECT_EQ(FeedableUntil(0, 200, false, 64), 192);
  EXPECT_EQ(FeedableUntil(70, 58, false, 64), 70) << "the head does not reach a border";
  EXPECT_EQ(FeedableUntil(70, 59, false, 64), 128);
  EXPECT_EQ(FeedableUntil(70, 200, false, 64), 256);
  EXPECT_EQ(FeedableUntil(7, 5, false, 1), 11);
  EXPECT_EQ(FeedableUntil(7, 1, false, 1), 7);
}

TEST(SliceEnd, IsABorderOrTheEnd) {
  EXPECT_EQ(SliceEnd(0, 1000, 512, 64), 512);
  EXPECT_EQ(SliceEnd(0, 1000, 511, 64), 448);
  EXPECT_EQ(SliceEnd(5, 1000, 58, 64), 5) << "the head does not fit";
  EXPECT_EQ(SliceEnd(5, 1000, 59, 64), 64);
  EXPECT_EQ(SliceEnd(5, 1000, 200, 64), 192) << "head and whole chunks in one";
  EXPECT_EQ(SliceEnd(64, 100, 36, 64), 100) << "the tail is whole or left";
  EXPECT_EQ(SliceEnd(64, 100, 35, 64), 64);
  EXPECT_EQ(SliceEnd(3, 100, 10, 1), 13);
}

TEST(Scheduler, LimitsThatCannotWorkAreRefused) {
  const auto error_of = [](const SchedulerLimits& limits) {
    return std::string(Scheduler::Create(limits).status().message());
  };
  EXPECT_THAT(error_of({.max_step_tokens = 64}), HasSubstr("max_step_tokens must be above"));
  EXPECT_THAT(error_of({.max_step_seqs = 0}), HasSubstr("max_step_seqs"));
  EXPECT_THAT(error_of({.prefill_granule = 0}), HasSubstr("prefill_granule"));
  EXPECT_THAT(error_of({.flops_per_token = 0}), HasSubstr("cost model"));
}

TEST(Scheduler, NothingToDoGivesNoRuns) {
  Scheduler scheduler = Make({});
  StepPlan plan;
  scheduler.Plan({}, &plan);
  EXPECT_TRUE(plan.runs.empty());
  const std::vector<SeqView> waiting = {{.index = 0, .position = 0, .pending = 60, .generating = false}};
  scheduler.Plan(waiting, &plan);
  EXPECT_TRUE(plan.runs.empty()) << "an append that fills no chunk waits for more";
}

TEST(Scheduler, EveryDecoderRunsInEveryStep) {
  Scheduler scheduler = Make({});
  std::vector<SeqView> seqs;
  for (int i = 0; i < 200; ++i) seqs.push_back(Decoder(i, 10 * i, 1000 - i));
  seqs.push_back(Prompt(200, 5000, 5000));
  StepPlan plan;
  for (int step = 0; step < 5; ++step) {
    scheduler.Plan(seqs, &plan);
    EXPECT_EQ(plan.num_decodes, 200);
    EXPECT_EQ(plan.num_prefill_tokens, 128)
        << "two chunks cost less than three quarters of 200 decodes, three more";
    Apply(plan, &seqs);
  }
}

TEST(Scheduler, WithoutDecodersPrefillTakesTheWholeStep) {
  Scheduler scheduler = Make({});
  const std::vector<SeqView> seqs = {Prompt(0, 300, 0), Prompt(1, 300, 1)};
  StepPlan plan;
  scheduler.Plan(seqs, &plan);
  EXPECT_EQ(TokensOf(plan, 0), 299);
  EXPECT_EQ(TokensOf(plan, 1), 192) << "whole chunks of what is left";
}

TEST(Scheduler, TheLastPromptTokenGoesAloneAsDecode) {
  Scheduler scheduler = Make({});
  std::vector<SeqView> seqs = {Prompt(0, 65, 0)};
  StepPlan plan;
  scheduler.Plan(seqs, &plan);
  ASSERT_EQ(plan.runs.size(), 1u);
  EXPECT_EQ(plan.runs[0].num_tokens, 64);
  EXPECT_FALSE(plan.runs[0].decode);
  Apply(plan, &seqs);
  scheduler.Plan(seqs, &plan);
  ASSERT_EQ(plan.runs.size(), 1u);
  EXPECT_EQ(plan.runs[0].num_tokens, 1);
  EXPECT_TRUE(plan.runs[0].decode);
}

// Runs 63 decoders beside one long prompt and checks each step's cost against its decodes alone. Returns the
// steps.
int RunBesideDecoders(const SchedulerLimits& limits) {
  Scheduler scheduler = Make(limits);
  std::vector<SeqView> seqs;
  for (int i = 0; i < 63; ++i) seqs.push_back(Decoder(i, 200 + i, i));
  seqs.push_back(Prompt(63, 20'000, 63));
  StepPlan plan;
  int steps = 0;
  while (seqs[63].pending > 1 && steps < 100'000) {
    scheduler.Plan(seqs, &plan);
    double decode_cost = 0;
    for (int i = 0; i < 63; ++i) decode_cost += CostOf(limits, seqs[i].position, 1);
    const double prefill_cost = CostOf(limits, seqs[63].position, plan.num_prefill_tokens);
    EXPECT_EQ(plan.num_decodes, 63);
    EXPECT_GE(plan.num_prefill_tokens, 1);
    EXPECT_TRUE(prefill_cost <= decode_cost * 0.75 * (1 + 1e-9) ||
                plan.num_prefill_tokens <= limits.prefill_granule)
        << prefill_cost << " against " << decode_cost;
    Apply(plan, &seqs);
    ++steps;
  }
  return steps;
}

TEST(Scheduler, BesideDecodersPrefillCostsThreeQuartersOfThem) {
  SchedulerLimits fixed;
  EXPECT_EQ(RunBesideDecoders(fixed), 313) << "one chunk of 64 a step";

  SchedulerLimits paged;
  paged.prefill_granule = 1;
  paged.flops_per_token_and_position = 1e-3;
  // The prompt costs 2.2e5 by this model, a step's decodes at first 80 and in the end about 200.
  const int steps = RunBesideDecoders(paged);
  EXPECT_GT(steps, 220'000 / 170);
  EXPECT_LT(steps, 220'000 / 60);
}

TEST(Scheduler, AGuaranteedShareOfPrefillCanBeSet) {
  SchedulerLimits limits;
  limits.prefill_granule = 1;
  limits.min_prefill_tokens = 16;
  Scheduler scheduler = Make(limits);
  const std::vector<SeqView> seqs = {Decoder(0, 100, 0), Prompt(1, 1000, 1), Prompt(2, 1000, 2)};
  StepPlan plan;
  scheduler.Plan(seqs, &plan);
  EXPECT_EQ(plan.num_prefill_tokens, 16);
}

TEST(Scheduler, SCH_02_APromptIsPrefilledOneSliceAStep) {
  Scheduler scheduler = Make({});
  std::vector<SeqView> seqs = {Prompt(0, 20'000, 0)};
  StepPlan plan;
  int steps = 0;
  while (seqs[0].pending > 1) {
    scheduler.Plan(seqs, &plan);
    ASSERT_LE(plan.num_prefill_tokens, 512) << "a cancelled prompt wastes no more than this";
    Apply(plan, &seqs);
    ++steps;
    ASSERT_TRUE(seqs[0].position % 64 == 0 || seqs[0].pending == 1);
  }
  EXPECT_EQ(steps, 40);
}

TEST(Scheduler, AShortPromptDoesNotWaitBehindALongOne) {
  for (const int decoders : {0, 1, 40}) {
    Scheduler scheduler = Make({});
    std::vector<SeqView> seqs = {Prompt(0, 20'000, 0), Prompt(1, 100, 1)};
    for (int i = 0; i < decoders; ++i) seqs.push_back(Decoder(2 + i, 50, 2 + i));
    StepPlan plan;
    int steps = 0;
    while (seqs[1].pending > 1) {
      scheduler.Plan(seqs, &plan);
      Apply(plan, &seqs);
      ++steps;
    }
    EXPECT_LE(steps, 4) << decoders;
    EXPECT_GT(seqs[0].position, 0);
  }
}

TEST(Scheduler, AFloodOfShortPromptsDoesNotStarveALongOne) {
  for (const bool beside_decodes : {false, true}) {
    Scheduler scheduler = Make({});
    uint64_t arrival = 0;
    std::vector<SeqView> seqs = {Prompt(0, 20'000, arrival++)};
    for (int i = 1; i <= 20; ++i) seqs.push_back(Prompt(i, 200, arrival++));
    if (beside_decodes) seqs.push_back(Decoder(21, 9, arrival++));
    StepPlan plan;
    int steps = 0;
    while (seqs[0].pending > 1 && steps < 2000) {
      scheduler.Plan(seqs, &plan);
      Apply(plan, &seqs);
      for (int i = 1; i <= 20; ++i) {
        if (seqs[i].pending == 1) seqs[i] = Prompt(i, 200, arrival++);
      }
      ++steps;
    }
    EXPECT_LE(steps, beside_decodes ? 2 * 313 : 2 * 40);
  }
}

TEST(Scheduler, TooManyDecodersTakeTurns) {
  SchedulerLimits limits;
  limits.max_step_seqs = 4;
  Scheduler scheduler = Make(limits);
  std::vector<SeqView> seqs;
  for (int i = 0; i < 10; ++i) seqs.push_back(Decoder(i, 0, 7 * i));
  StepPlan plan;
  std::vector<int> runs(10);
  for (int step = 0; step < 50; ++step) {
    scheduler.Plan(seqs, &plan);
    ASSERT_EQ(plan.num_decodes, 4);
    for (const ScheduledRun& run : plan.runs) ++runs[run.index];
    Apply(plan, &seqs);
    const auto [least, most] = std::minmax_element(runs.begin(), runs.end());
    ASSERT_LE(*most - *least, 1) << "step " << step;
  }
}

TEST(Scheduler, NewDecodersDoNotStarveOldOnes) {
  SchedulerLimits limits;
  limits.max_step_seqs = 4;
  Scheduler scheduler = Make(limits);
  uint64_t arrival = 0;
  std::vector<SeqView> seqs;
  for (int i = 0; i < 12; ++i) seqs.push_back(Decoder(i, 0, arrival++));
  std::vector<int> last_run(12, 0);
  StepPlan plan;
  for (int step = 1; step <= 300; ++step) {
    scheduler.Plan(seqs, &plan);
    for (const ScheduledRun& run : plan.runs) {
      last_run[run.index] = step;
      // All but the first two end after one token, and others take their places.
      if (run.index >= 2) seqs[run.index] = Decoder(run.index, 0, arrival++);
    }
    for (const int index : {0, 1}) ASSERT_LE(step - last_run[index], 6) << "index " << index;
  }
}

TEST(Scheduler, PrefillKeepsAChunkOfTheStepsTokens) {
  SchedulerLimits limits;
  limits.max_step_tokens = 70;
  Scheduler scheduler = Make(limits);
  std::vector<SeqView> seqs;
  for (int i = 0; i < 20; ++i) seqs.push_back(Decoder(i, 0, i));
  seqs.push_back(Prompt(20, 640, 20));
  StepPlan plan;
  scheduler.Plan(seqs, &plan);
  EXPECT_EQ(plan.num_decodes, 6);
  EXPECT_EQ(plan.num_prefill_tokens, 64);
  seqs.pop_back();
  scheduler.Plan(seqs, &plan);
  EXPECT_EQ(plan.num_decodes, 20) << "nothing is kept for nobody";
}

TEST(Scheduler, PrefillKeepsAPlaceAmongTooManyDecoders) {
  for (const int max_step_seqs : {1, 2, 8}) {
    SchedulerLimits limits;
    limits.max_step_seqs = max_step_seqs;
    Scheduler scheduler = Make(limits);
    std::vector<SeqView> seqs;
    for (int i = 0; i < 20; ++i) seqs.push_back(Decoder(i, 0, i));
    seqs.push_back(Prompt(20, 640, 20));
    StepPlan plan;
    int steps = 0;
    int decodes = 0;
    while (seqs[20].pending > 1 && steps < 100) {
      scheduler.Plan(seqs, &plan);
      ASSERT_LE(static_cast<int>(plan.runs.size()), max_step_seqs);
      decodes += plan.num_decodes;
      Apply(plan, &seqs);
      ++steps;
    }
    EXPECT_LE(steps, 20) << max_step_seqs;
    EXPECT_GE(decodes, std::max(1, max_step_seqs - 1) * steps / 2 - 1) << max_step_seqs;
  }
}

// One turn of a session: `given` more tokens, then `generated` ones, or none for an append.
struct Turn {
  int64_t given;
  int64_t generated;
};

// How a sequence was cut: the begins and ends of whole chunks, and single tokens. Kernels see nothing else.
using Cuts = std::vector<std::pair<int64_t, int64_t>>;

void AddCuts(int64_t begin, int64_t end, int granule, bool decode, Cuts* cuts) {
  while (begin < end) {
    const int64_t size = !decode && begin % granule == 0 && begin + granule <= end ? granule : 1;
    cuts->emplace_back(begin, begin + size);
    begin += size;
  }
}

// What the turns alone say, without a scheduler.
Cuts ExpectedCuts(const std::vector<Turn>& turns, int granule) {
  Cuts cuts;
  int64_t position = 0;
  int64_t pending = 0;
  for (const Turn& turn : turns) {
    pending += turn.given;
    const int64_t last = position + pending - 1;
    const int64_t end = turn.generated > 0 ? last : std::max(position, last / granule * granule);
    AddCuts(position, end, granule, false, &cuts);
    pending -= end - position;
    position = end;
    AddCuts(position, position + turn.generated, granule, true, &cuts);
    position += turn.generated;
  }
  return cuts;
}

struct Session {
  std::vector<Turn> turns;
  size_t turn = 0;
  SeqView view;
  int64_t to_generate = 0;
  Cuts cuts;

  bool Finished() const { return turn == turns.size(); }
  bool Idle(int granule) const {
    if (view.generating) return to_generate == 0;
    return view.pending == 0 || FeedableUntil(view.position, view.pending, false, granule) == view.position;
  }
};

// Steps sessions through their turns at random moments under `limits`, checking each plan.
void RunWorld(const SchedulerLimits& limits, std::vector<Session>* sessions, std::mt19937* engine) {
  Scheduler scheduler = Make(limits);
  const int granule = limits.prefill_granule;
  uint64_t arrival = 0;
  StepPlan plan;
  std::vector<SeqView> views;
  std::vector<bool> open(sessions->size(), false);
  for (int step = 0;; ++step) {
    ASSERT_LT(step, 200'000) << "something starves";
    views.clear();
    bool all_finished = true;
    for (size_t i = 0; i < sessions->size(); ++i) {
      Session& session = (*sessions)[i];
      if (open[i] && session.Idle(granule)) {
        open[i] = false;
        ++session.turn;
      }
      all_finished = all_finished && session.Finished();
      if (!open[i] && !session.Finished() && (*engine)() % 4 == 0) {
        const Turn& turn = session.turns[session.turn];
        session.view.index = static_cast<int>(i);
        session.view.arrival = arrival++;
        session.view.pending += turn.given;
        session.view.generating = turn.generated > 0;
        session.to_generate = turn.generated;
        open[i] = true;
      }
      if (open[i] && !session.Idle(granule)) views.push_back(session.view);
    }
    if (all_finished) return;
    scheduler.Plan(views, &plan);
    ASSERT_EQ(plan.runs.empty(), views.empty());

    int tokens = 0;
    int decodes = 0;
    double decode_cost = 0;
    double prefill_cost = 0;
    std::set<int> seen;
    for (const ScheduledRun& run : plan.runs) {
      Session& session = (*sessions)[run.index];
      SeqView& view = session.view;
      ASSERT_TRUE(open[run.index] && seen.insert(run.index).second);
      ASSERT_GE(run.num_tokens, 1);
      tokens += run.num_tokens;
      (run.decode ? decode_cost : prefill_cost) += CostOf(limits, view.position, run.num_tokens);
      if (run.decode) {
        ASSERT_TRUE(view.generating && view.pending == 1 && run.num_tokens == 1);
        ++decodes;
        --session.to_generate;
      } else {
        ASSERT_LE(view.position + run.num_tokens,
                  FeedableUntil(view.position, view.pending, view.generating, granule));
        view.pending -= run.num_tokens;
      }
      AddCuts(view.position, view.position + run.num_tokens, granule, run.decode, &session.cuts);
      view.position += run.num_tokens;
    }
    ASSERT_EQ(plan.num_decodes, decodes);
    ASSERT_EQ(plan.num_prefill_tokens, tokens - decodes);
    ASSERT_LE(tokens, limits.max_step_tokens);
    ASSERT_LE(static_cast<int>(plan.runs.size()), limits.max_step_seqs);
    if (decodes > 0) {
      ASSERT_TRUE(prefill_cost <= decode_cost * 0.75 * (1 + 1e-9) ||
                  plan.num_prefill_tokens <= std::max(granule, limits.min_prefill_tokens));
    }
  }
}

TEST(Scheduler, CutsDependOnTheTurnsAloneWhateverTheLoad) {
  std::mt19937 engine(17);
  int64_t chunks = 0;
  for (int world = 0; world < 60; ++world) {
    SchedulerLimits limits;
    limits.prefill_granule = world % 4 == 0 ? 1 : world % 4 == 1 ? 16 : 64;
    limits.max_step_tokens = limits.prefill_granule + 1 + static_cast<int>(engine() % 600);
    limits.max_step_seqs = 1 + static_cast<int>(engine() % 12);
    limits.min_prefill_tokens = 1 + static_cast<int>(engine() % 100);
    limits.flops_per_token_and_position = world % 3 == 0 ? 0.0 : 1e-3;
    std::vector<Session> sessions(1 + engine() % 14);
    for (Session& session : sessions) {
      session.view.pending = 0;
      session.turns.resize(1 + engine() % 5);
      for (Turn& turn : session.turns) {
        turn.given = 1 + engine() % (engine() % 4 == 0 ? 900 : 90);
        turn.generated = engine() % 2 == 0 ? 0 : 1 + engine() % 80;
      }
    }
    RunWorld(limits, &sessions, &engine);
    if (HasFatalFailure()) return;
    for (const Session& session : sessions) {
      ASSERT_EQ(session.cuts, ExpectedCuts(session.turns, limits.prefill_granule)) << "world " << world;
      for (const auto& [begin, end] : session.cuts) chunks += end - begin > 1;
    }
  }
  EXPECT_GT(chunks, 300) << "the worlds hold whole chunks";
}

TEST(Scheduler, AppendThenGenerateIsCutLikeGenerate) {
  std::mt19937 engine(5);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t first = 1 + engine() % 300;
    const int64_t second = 1 + engine() % 300;
    const int64_t third = 1 + engine() % 300;
    std::vector<Session> sessions(2);
    for (Session& session : sessions) session.view.pending = 0;
    // After a generation, so that the position is on no border.
    sessions[0].turns = {{10, 7}, {first, 0}, {second, 0}, {third, 5}};
    sessions[1].turns = {{10, 7}, {first + second + third, 5}};
    SchedulerLimits limits;
    limits.max_step_tokens = 65 + static_cast<int>(engine() % 300);
    RunWorld(limits, &sessions, &engine);
    if (HasFatalFailure()) return;
    ASSERT_EQ(sessions[0].cuts, sessions[1].cuts) << first << " " << second << " " << third;
  }
}

}  // namespace
}  // namespace weir
