// A whole load test: which phases there are, one after the other, and what is reported of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/loadtest/growth.h"
#include "client/loadtest/loop.h"
#include "client/loadtest/phase.h"
#include "client/loadtest/report.h"
#include "client/loadtest/traffic.h"
#include "client/loadtest/transport.h"
#include "client/loadtest/workload.h"
#include "weir/v1/models.pb.h"
#include "weir/v1/server_info.pb.h"

namespace weir {

inline constexpr std::string_view kLoadtestFailed = "LOADTEST_FAILED";  // the reason of a verdict
// Likewise, where nothing was found against the server, and too little for it.
inline constexpr std::string_view kLoadtestUndecided = "LOADTEST_UNDECIDED";
inline constexpr std::string_view kModelNotFound = "MODEL_NOT_FOUND";  // as the server says it

struct WeightedModel {
  std::string name;
  double weight = 1;
};

struct LoadtestOptions {
  // At most one of the two: models that get requests at the same time, by weight; or models that are measured
  // in turn, each by itself. Neither: the server's only model.
  std::vector<WeightedModel> models;
  std::vector<std::string>
      compare;  // names; or a mixer's name, also without _attention, where one model has it

  bool traffic = true;
  // Of every phase of traffic; arrivals, concurrency and rate come from the sweep.
  TrafficOptions phase;
  std::vector<int64_t> concurrency = {8};  // closed loop, a phase each; not used where there are rates
  std::vector<double> rates;               // open loop, a phase each
  ArrivalKind open_arrivals = ArrivalKind::kPoisson;
  // But for its models.
  WorkloadOptions workload;

  GrowthOptions
      growth;  // only where it has positions; the model, and what it says of itself, is set at the time
  bool capacity = false;

  bool fail_on_empty = false;
  bool fail_on_error = false;
};

// All are called on the loop's thread.
struct LoadtestHooks {
  // Looked at ten times a second; once true the run ends early.
  std::function<bool()> interrupted = [] { return false; };
  // Twice a second while a phase runs, and once at its end.
  std::function<void(const std::string& phase, const std::vector<LiveRow>& rows, bool ended)> live =
      [](const std::string&, const std::vector<LiveRow>&, bool) {};
  // Before anything is measured: what will not come of it, and what to do.
  std::function<void(const std::string& text)> warn = [](const std::string&) {};
};

struct LoadtestOutcome {
  Report report;
  // Why the run ended before its time; OK: it did not. CANCELLED: interrupted.
  absl::Status ended_early;
};

// Runs `loop` until everything is done; blocks. An error when nothing could be started, as of a server that
// does not answer or a model that is not there; whatever comes later is in the report.
absl::StatusOr<LoadtestOutcome> RunLoadtest(const LoadtestOptions& options, const LoadtestHooks& hooks,
                                            Loop* loop, Transport* transport);

// Runs `loop` until `phase` is done, calling the hooks. `name` is what the live table calls it.
void RunLoadPhase(const std::string& name, LoadPhase* phase, const LoadtestHooks& hooks, Loop* loop);

// Runs `loop` until the answer is there, or `timeout` is over.
absl::StatusOr<v1::ServerInfo> AskServer(Loop* loop, Transport* transport,
                                         absl::Duration timeout = absl::Seconds(10));

// The models that the options name, in their order. NOT_FOUND (kModelNotFound) lists those that there are;
// INVALID_ARGUMENT when one is named twice.
absl::StatusOr<std::vector<v1::Model>> ChooseModels(const LoadtestOptions& options,
                                                    const v1::ServerInfo& info);

// OK, or `report.failures` in one sentence (kLoadtestFailed or kLoadtestUndecided).
absl::Status VerdictOf(const Report& report);

}  // namespace weir
