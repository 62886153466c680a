#include "client/loadtest/run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/loadtest/run_growth.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr int kLooksPerDrawing = 5;
constexpr absl::Duration kAskWhenInterrupted = absl::Seconds(2);  // somebody waits for the end
constexpr std::string_view kModels = "models/";

std::string_view IdOf(std::string_view name) {
  if (name.substr(0, kModels.size()) == kModels) name.remove_prefix(kModels.size());
  return name;
}

absl::Status NoSuchModel(std::string_view what, const v1::ServerInfo& info) {
  std::vector<std::string> names;
  for (const v1::ModelUse& use : info.models())
    names.push_back(fmt::format("{} ({})", IdOf(use.model().name()), use.model().mixer()));
  return MakeError(absl::StatusCode::kNotFound, kModelNotFound,
                   fmt::format("{}; this server has {}", what, fmt::join(names, ", ")));
}

absl::StatusOr<v1::Model> ModelByName(std::string_view name, const v1::ServerInfo& info) {
  for (const v1::ModelUse& use : info.models())
    if (IdOf(use.model().name()) == IdOf(name)) return use.model();
  return NoSuchModel(fmt::format("{} is not served here", Quoted(name)), info);
}

absl::StatusOr<v1::Model> ModelByNameOrMixer(std::string_view name, const v1::ServerInfo& info) {
  if (absl::StatusOr<v1::Model> model = ModelByName(name, info); model.ok()) return model;
  std::vector<v1::Model> found;
  for (const v1::ModelUse& use : info.models())
    if (use.model().mixer() == name || use.model().mixer() == fmt::format("{}_attention", name))
      found.push_back(use.model());
  if (found.size() == 1) return found.front();
  return NoSuchModel(found.empty() ? fmt::format("no model here has the name or the mixer {}", Quoted(name))
                                   : fmt::format("{} models here have the mixer {}, so name one",
                                                 found.size(), Quoted(name)),
                     info);
}

ModelReport Described(const v1::Model& model) {
  return {.name = std::string(IdOf(model.name())),
          .mixer = model.mixer(),
          .architecture = model.architecture(),
          .weight_dtype = model.weight_dtype(),
          .parameters = model.parameter_count(),
          .paged = model.state().kind() == v1::StateCost::KIND_PAGED,
          .fixed_bytes = model.state().fixed_bytes(),
          .block_bytes = model.state().block_bytes(),
          .block_tokens = model.state().block_tokens(),
          .traffic = {},
          .growth = {},
          .break_even = {},
          .capacity = {}};
}

WorkloadModel Drawn(const v1::Model& model, double weight) {
  return {.name = std::string(IdOf(model.name())),
          .weight = weight,
          .vocab_size = model.vocab_size(),
          .eos_token_ids = {model.eos_token_ids().begin(), model.eos_token_ids().end()}};
}

// One phase's place in the sweep.
struct Load {
  ArrivalKind arrivals;
  int64_t concurrency = 0;
  double rate = 0;

  std::string Text() const {
    return arrivals == ArrivalKind::kClosed ? fmt::format("{} at once", concurrency)
                                            : fmt::format("{} per second, {}", rate, ArrivalName(arrivals));
  }
};

std::vector<Load> Sweep(const LoadtestOptions& options) {
  std::vector<Load> loads;
  if (options.rates.empty())
    for (const int64_t users : options.concurrency) loads.push_back({ArrivalKind::kClosed, users, 0});
  for (const double rate : options.rates) loads.push_back({options.open_arrivals, 0, rate});
  return loads;
}

ReportLimits LimitsOf(const GoodputLimits& limits) {
  const auto ms = [](absl::Duration limit) {
    return limit == absl::InfiniteDuration() ? std::nullopt
                                             : std::optional(absl::ToDoubleMilliseconds(limit));
  };
  return {.ttft_ms = ms(limits.ttft), .tpot_ms = ms(limits.tpot), .e2e_ms = ms(limits.e2e)};
}

// Prompt and generated tokens that the server has counted, of some models.
std::pair<int64_t, int64_t> ServerTokens(const v1::ServerInfo& info,
                                         const std::vector<WorkloadModel>& models) {
  std::pair<int64_t, int64_t> sum = {0, 0};
  for (const v1::ModelUse& use : info.models())
    for (const WorkloadModel& model : models)
      if (IdOf(use.model().name()) == model.name) {
        sum.first += use.prompt_tokens();
        sum.second += use.generated_tokens();
      }
  return sum;
}

class LoadtestRun {
 public:
  LoadtestRun(const LoadtestOptions& options, const LoadtestHooks& hooks, Loop* loop, Transport* transport)
      : options_(options), hooks_(hooks), loop_(loop), transport_(transport) {}

  absl::StatusOr<LoadtestOutcome> Run() {
    const absl::Duration start = loop_->Now();
    Report& report = outcome_.report;
    report.started = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", ToWallTime(MonotonicNow()), absl::UTCTimeZone());
    WEIR_ASSIGN_OR_RETURN(info_, AskServer(loop_, transport_));
    WEIR_ASSIGN_OR_RETURN(models_, ChooseModels(options_, info_));
    WEIR_RETURN_IF_ERROR(CheckModels());
    report.seed = options_.workload.seed;
    report.server_version = info_.version();
    report.server_device = info_.device();
    report.server_compute_threads = info_.compute_threads();
    report.limits = LimitsOf(options_.phase.limits);
    for (const v1::Model& model : models_) report.models.push_back(Described(model));
    FindBreakEvens(&report.models);
    WarnOfGrowth(options_.growth, report.models, hooks_);
    if (options_.traffic) RunTraffic();
    for (size_t m = 0; m < models_.size(); ++m) RunGrowthAndCapacity(models_[m], &report.models[m]);
    report.seconds = absl::ToDoubleSeconds(loop_->Now() - start);
    return std::move(outcome_);
  }

 private:
  bool mixed() const { return options_.models.size() > 1; }
  bool going() const { return outcome_.ended_early.ok(); }

  absl::Status CheckModels() const {
    if (options_.workload.prompts.empty()) return absl::OkStatus();
    for (const v1::Model& model : models_)
      if (!model.has_tokenizer())
        return MakeError(
            absl::StatusCode::kFailedPrecondition, kModelNotFound,
            fmt::format("{} has no tokenizer, so it takes no prompts of text: leave out --prompts for "
                        "synthetic ones, or start the server with a --tokenizer",
                        Quoted(IdOf(model.name()))));
    return absl::OkStatus();
  }

  void RunTraffic() {
    for (size_t m = 0; m < (mixed() ? 1 : models_.size()); ++m)
      for (const Load& load : Sweep(options_))
        if (going()) RunTrafficPhase(m, load);
  }

  // What a model shows by itself, besides traffic.
  void RunGrowthAndCapacity(const v1::Model& served, ModelReport* model) {
    std::vector<std::string>* failures = &outcome_.report.failures;
    const uint64_t seed = options_.workload.seed;
    if (going() && !options_.growth.positions.empty()) {
      GrowthOptions growth = options_.growth;
      growth.seed = seed;
      growth.context_limit = served.context_limit();
      NoteEnd(RunGrowth(std::move(growth), served.vocab_size(), hooks_, loop_, transport_, model, failures));
    }
    if (going() && options_.capacity)
      NoteEnd(RunCapacity(served.vocab_size(), seed, hooks_, loop_, transport_, model, failures));
  }

  // Behind the phase's own failure, which says what was measured until then.
  void NoteEnd(const absl::Status& lost) {
    const std::vector<std::string>& failures = outcome_.report.failures;
    if (!lost.ok())
      outcome_.ended_early = MakeError(lost.code(), GetErrorDetails(lost).reason,
                                       failures.empty() ? std::string(lost.message()) : failures.back());
    else if (hooks_.interrupted())
      outcome_.ended_early = absl::CancelledError("interrupted");
  }

  Workload WorkloadOf(size_t model) const {
    WorkloadOptions options = options_.workload;
    if (mixed())
      for (size_t i = 0; i < models_.size(); ++i)
        options.models.push_back(Drawn(models_[i], options_.models[i].weight));
    else
      options.models.push_back(Drawn(models_[model], 1));
    return Workload(std::move(options));
  }

  void RunTrafficPhase(size_t m, const Load& load) {
    const Workload workload = WorkloadOf(m);
    TrafficOptions options = options_.phase;
    options.arrivals = load.arrivals;
    options.concurrency = load.concurrency;
    options.rate = load.rate;
    options.seed = options_.workload.seed;
    TrafficPhase phase(options, &workload, transport_, loop_);
    const std::string name =
        fmt::format("{}, {}", mixed() ? "mixed" : workload.models().front().name, load.Text());
    const auto before = ServerTokens(info_, workload.models());
    RunLoadPhase(name, &phase, hooks_, loop_);
    TrafficFigures all = phase.Figures();
    if (phase.lost().ok()) {
      const absl::Duration patience = hooks_.interrupted() ? kAskWhenInterrupted : absl::Seconds(10);
      if (absl::StatusOr<v1::ServerInfo> info = AskServer(loop_, transport_, patience); info.ok()) {
        info_ = *std::move(info);
        const auto after = ServerTokens(info_, workload.models());
        all.server_prompt_tokens = after.first - before.first;
        all.server_generated_tokens = after.second - before.second;
      }
    }
    Judge(name, all, phase.lost());
    Report& report = outcome_.report;
    if (!mixed()) {
      report.models[m].traffic.push_back(std::move(all));
      return;
    }
    MixedFigures figures = {.all = std::move(all), .models = {}};
    for (size_t i = 0; i < models_.size(); ++i) figures.models[report.models[i].name] = phase.ModelFigures(i);
    report.mixed.push_back(std::move(figures));
  }

  void Judge(const std::string& name, const TrafficFigures& figures, const absl::Status& lost) {
    std::vector<std::string>& failures = outcome_.report.failures;
    if (!lost.ok())
      failures.push_back(fmt::format(
          "{}: {} after {:.1f} s; up to then {} requests were completed and {} tokens came, and what "
          "would have come after it was not measured",
          name, std::string(lost.message()), figures.seconds, figures.completed,
          figures.all_generated_tokens));
    NoteEnd(lost);
    if (lost.ok() && !going())
      failures.push_back(
          fmt::format("{}: interrupted; what would have come after it was not measured", name));
    if (figures.scheduled > 0 && figures.completed == 0 && going())
      failures.push_back(fmt::format("{}: no request of {} was completed", name, figures.scheduled));
    if (options_.fail_on_empty && figures.empty > 0)
      failures.push_back(fmt::format("{}: {} streams of {} ended without a token (--fail-on-empty)", name,
                                     figures.empty, figures.scheduled));
    if (options_.fail_on_error && figures.failed > 0)
      failures.push_back(fmt::format("{}: {} requests of {} failed (--fail-on-error)", name, figures.failed,
                                     figures.scheduled));
  }

  const LoadtestOptions& options_;
  const LoadtestHooks& hooks_;
  Loop* const loop_;
  Transport* const transport_;
  v1::ServerInfo info_;  // the latest
  std::vector<v1::Model> models_;
  LoadtestOutcome outcome_;
};

// Looks in on a phase; lives as long as a timer of it is left.
struct PhaseWatch {
  std::string name;
  LoadPhase* phase;  // null once it is done
  const LoadtestHooks* hooks;
  Loop* loop;
  int looks = 0;

  static void Look(const std::shared_ptr<PhaseWatch>& watch) {
    watch->loop->At(watch->loop->Now() + kLook, [watch] {
      if (watch->phase == nullptr) return;
      if (watch->hooks->interrupted()) watch->phase->Interrupt();
      if (++watch->looks % kLooksPerDrawing == 0)
        watch->hooks->live(watch->name, watch->phase->Live(), false);
      Look(watch);
    });
  }
};

}  // namespace

absl::StatusOr<LoadtestOutcome> RunLoadtest(const LoadtestOptions& options, const LoadtestHooks& hooks,
                                            Loop* loop, Transport* transport) {
  return LoadtestRun(options, hooks, loop, transport).Run();
}

void RunLoadPhase(const std::string& name, LoadPhase* phase, const LoadtestHooks& hooks, Loop* loop) {
  const auto watch = std::make_shared<PhaseWatch>(PhaseWatch{name, phase, &hooks, loop});
  PhaseWatch::Look(watch);
  phase->Start([loop] { loop->Stop(); });
  loop->Run();
  watch->phase = nullptr;
  hooks.live(name, phase->Live(), true);
}

absl::StatusOr<v1::ServerInfo> AskServer(Loop* loop, Transport* transport, absl::Duration timeout) {
  absl::StatusOr<v1::ServerInfo> answer = absl::InternalError("the loop was stopped");
  transport->GetServerInfo(timeout,
                           [&](absl::Duration, const absl::Status& status, const v1::ServerInfo& info) {
                             if (status.ok())
                               answer = info;
                             else
                               answer = status;
                             loop->Stop();
                           });
  loop->Run();
  return answer;
}

absl::StatusOr<std::vector<v1::Model>> ChooseModels(const LoadtestOptions& options,
                                                    const v1::ServerInfo& info) {
  std::vector<v1::Model> models;
  for (const WeightedModel& wanted : options.models) {
    WEIR_ASSIGN_OR_RETURN(v1::Model model, ModelByName(wanted.name, info));
    models.push_back(std::move(model));
  }
  for (const std::string& wanted : options.compare) {
    WEIR_ASSIGN_OR_RETURN(v1::Model model, ModelByNameOrMixer(wanted, info));
    models.push_back(std::move(model));
  }
  if (models.empty()) {
    if (info.models_size() != 1) return NoSuchModel("name a model with -m, or several with --compare", info);
    models.push_back(info.models(0).model());
  }
  for (size_t i = 0; i < models.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (models[i].name() == models[j].name())
        return MakeError(
            absl::StatusCode::kInvalidArgument, kModelNotFound,
            fmt::format("{} is named twice: name each model once", Quoted(IdOf(models[i].name()))));
  return models;
}

absl::Status VerdictOf(const Report& report) {
  if (report.failures.empty()) return absl::OkStatus();
  if (IsUndecided(report))
    return MakeError(absl::StatusCode::kFailedPrecondition, kLoadtestUndecided,
                     fmt::format("the load test is undecided: {}", fmt::join(report.failures, "; ")));
  return MakeError(absl::StatusCode::kFailedPrecondition, kLoadtestFailed,
                   fmt::format("the load test did not pass: {}", fmt::join(report.failures, "; ")));
}

}  // namespace weir
