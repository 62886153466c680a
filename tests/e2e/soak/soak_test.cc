// A mixed load for a long time: turns in and out of sessions, forks, cancels, deadlines and slow readers,
// over every mixer at once. SOAK_SECONDS says how long; 120 without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tests/e2e/fault_run/fault_harness.h"
#include "tests/e2e/soak/soak_worker.h"

namespace weir::testing {
namespace {

constexpr int kTalks = kSanitized ? 15 : 64;
constexpr int kWorkers = kSanitized ? 6 : 24;

absl::Duration SoakTime() {
  int seconds = 0;
  const char* asked = std::getenv("SOAK_SECONDS");
  if (asked != nullptr && absl::SimpleAtoi(asked, &seconds) && seconds > 0) return absl::Seconds(seconds);
  return absl::Seconds(kSanitized ? 20 : 120);
}

class Soak : public FaultRun {
 protected:
  // The pages of states and caches count as the server's once they have been written. Takes every slot of
  // every model, and a slot's share of the cache, once.
  void WriteAllStates() {
    const WeirClient client = Connect();
    const v1::ServerInfo info = Info();
    for (const v1::ModelUse& use : info.models()) {
      const v1::StateCost& cost = use.model().state();
      const int64_t tokens = cost.block_tokens() * (use.kv_blocks_total() / use.slots_total() - 1) + 2;
      std::vector<std::string> names;
      for (int64_t slot = 0; slot < use.slots_free(); ++slot) {
        v1::CreateSessionRequest create;
        create.mutable_session()->set_model(use.model().name());
        const absl::StatusOr<v1::Session> session = client.CreateSession(create);
        ASSERT_TRUE(session.ok()) << session.status();
        names.push_back(session->name());
        v1::AppendSessionRequest append;
        append.set_name(session->name());
        for (int64_t i = 0; i < std::max<int64_t>(tokens, 2); ++i)
          append.mutable_prompt()->mutable_token_ids()->add_ids(static_cast<int32_t>(100 + i % 100));
        const absl::StatusOr<v1::AppendSessionResponse> appended = client.AppendSession(append);
        ASSERT_TRUE(appended.ok()) << appended.status();
      }
      for (const std::string& name : names) {
        v1::DeleteSessionRequest gone;
        gone.set_name(name);
        ASSERT_TRUE(client.DeleteSession(gone).ok());
      }
    }
  }
};

TEST_F(Soak, NothingIsLostWrongOrDoubledAndMemoryStays) {
  const std::vector<std::string> models = {"tales-linear", "tales-performer", "tales-mamba", "tales-mamba2",
                                           "tales-softmax"};
  Serve(models);
  StartServer();
  if (HasFatalFailure()) return;
  std::vector<TalkTemplate> talks = MakeTalkTemplates(models, kTalks);
  for (TalkTemplate& talk : talks) {
    const absl::Status recorded = RecordAlone(Connect(), &talk);
    ASSERT_TRUE(recorded.ok()) << recorded;
  }

  if (!kSanitized) WriteAllStates();  // memory says nothing there
  if (HasFatalFailure()) return;
  std::vector<std::unique_ptr<SoakWorker>> workers;
  for (int i = 0; i < kWorkers; ++i)
    workers.push_back(std::make_unique<SoakWorker>(address_, talks, static_cast<uint64_t>(i)));
  StartWitnesses();
  for (const auto& worker : workers) worker->Start();
  const absl::Time start = absl::Now();
  std::vector<int64_t> resident;  // one a second
  while (absl::Now() - start < SoakTime() &&
         std::all_of(workers.begin(), workers.end(), [](const auto& worker) { return worker->talking(); })) {
    absl::SleepFor(absl::Seconds(1));
    resident.push_back(ResidentBytes());
  }
  SoakCounts counts;
  for (const auto& worker : workers) {
    const absl::Status status = worker->Stop();
    EXPECT_TRUE(status.ok()) << status;
    counts += worker->counts();
  }
  StopWitnesses();
  ExpectAllIsFree();
  fmt::print(
      "{} talks, {} turns: {} cancelled, {} past their deadline, {} read slowly, {} gone on with; {} "
      "tokens\n",
      counts.talks, counts.turns, counts.cancelled, counts.past_deadline, counts.slow, counts.resumed,
      counts.tokens);
  EXPECT_GT(counts.cancelled, 0);
  EXPECT_GT(counts.past_deadline, 0);
  EXPECT_GT(counts.slow, 0);
  EXPECT_GT(counts.resumed, 0);
  // What grows with the work done grows in the last half, too.
  const int64_t half = resident[resident.size() / 2];
  fmt::print("memory after half the time {:.1f} MiB, at the end {:.1f} MiB\n",
             static_cast<double>(half) / (1 << 20), static_cast<double>(resident.back()) / (1 << 20));
  if (!kSanitized) EXPECT_LE(resident.back() - half, kAllowance);
  StopServer();
}

}  // namespace
}  // namespace weir::testing
