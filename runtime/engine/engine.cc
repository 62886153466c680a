#include "runtime/engine/engine.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/worker_pool.h"
#include "runtime/engine/device_errors.h"
#include "runtime/engine/engine_call.h"
#include "runtime/engine/model_runner.h"

namespace weir {
namespace {

// With turns in line that nothing admits, the engine looks again after this long at the latest.
constexpr absl::Duration kLongestWait = absl::Milliseconds(100);

std::unique_ptr<const std::vector<SnapshotShape>> ShapesOf(const std::vector<EngineModel>& models) {
  auto shapes = std::make_unique<std::vector<SnapshotShape>>();
  for (const EngineModel& model : models) shapes->push_back(SnapshotShape::Of(model));
  return shapes;
}

}  // namespace

Engine::Engine(std::shared_ptr<Device> device, std::vector<EngineModel> models, const EngineOptions& options)
    : options_(options),
      device_(std::move(device)),
      models_(std::move(models)),
      shapes_(ShapesOf(models_)),
      snapshot_budget_(options.snapshot_memory) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<Device> device,
                                                       std::vector<EngineModel> models,
                                                       const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(device), std::move(models), options));
  for (size_t i = 0; i < engine->models_.size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(auto runner,
                          ModelRunner::Create(static_cast<int>(i), engine->models_[i], *engine->device_,
                                              engine->options_, &engine->snapshot_budget_));
    engine->runners_.push_back(std::move(runner));
  }
  engine->wake_list_ = std::make_unique<WakeList>();
  engine->notifier_ = std::make_unique<Notifier>();
  engine->PublishStats();
  engine->thread_ = std::thread([raw = engine.get()] { raw->Run(); });
  return engine;
}

Engine::~Engine() { Stop(); }

// --- any thread ---

bool Engine::Post(Command command) {
  {
    MutexLock lock(&mu_);
    if (stop_) return false;
    mailbox_.push_back(std::move(command));
  }
  wake_.NotifyOne();
  return true;
}

absl::Status Engine::Stopped() const {
  MutexLock lock(&mu_);
  return stopped_by_.ok() ? Draining() : stopped_by_;
}

absl::StatusOr<std::shared_ptr<TokenStream>> Engine::Submit(TurnParams params,
                                                            absl::AnyInvocable<void()> on_readable) {
  if (draining()) return Draining();
  if (params.session.empty()) {
    // Counted here and not on the engine's thread, so that the refusal does not wait for a step.
    WEIR_CHECK(params.model >= 0 && params.model < static_cast<int>(runners_.size()));
    ModelRunner& runner = *runners_[params.model];
    const int max_waiting = models_[params.model].limits.max_waiting;
    if (runner.outstanding().fetch_add(1) >= runner.admissible() + max_waiting) {
      runner.outstanding().fetch_sub(1);
      return MakeError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                       fmt::format("{} turns are waiting for model '{}' already; try again later",
                                   max_waiting, models_[params.model].name),
                       {{"capacity", std::to_string(max_waiting)}}, absl::Seconds(1));
    }
  }
  auto stream = std::make_shared<TokenStream>(params.sampling.top_logprobs, options_.max_tokens_waiting,
                                              std::move(on_readable), [this] {
                                                {
                                                  MutexLock lock(&mu_);
                                                  nudged_ = true;
                                                }
                                                wake_.NotifyOne();
                                              });
  submitting_.fetch_add(1);
  const int model = params.session.empty() ? params.model : -1;
  const bool posted = Post([this, params = std::move(params), stream]() mutable {
    SubmitOnEngine(std::move(params), std::move(stream));
    submitting_.fetch_sub(1);
  });
  if (!posted) {
    submitting_.fetch_sub(1);
    if (model >= 0) runners_[model]->outstanding().fetch_sub(1);
    return Stopped();
  }
  return stream;
}

void Engine::CreateSession(CreateParams params, Done<SessionInfo> done) {
  if (draining()) return RefuseAtOnce(Draining(), &metrics_, &done);
  Call<SessionInfo>(std::move(done), [this, params = std::move(params)]() -> absl::StatusOr<SessionInfo> {
    SessionTable& sessions = runners_[params.model]->sessions();
    WEIR_RETURN_IF_ERROR(CheckNewSession(params.id, params.owner, sessions.arena().slot_bytes()));
    return sessions.Add(params, MonotonicNow());
  });
}

void Engine::GetSession(std::string id, std::string owner, Done<SessionInfo> done) {
  Call<SessionInfo>(std::move(done),
                    [this, id = std::move(id), owner = std::move(owner)]() -> absl::StatusOr<SessionInfo> {
                      WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(id, owner));
                      WEIR_ASSIGN_OR_RETURN(const Session* session, runner->sessions().Find(id, owner));
                      return runner->sessions().Info(*session, /*with_recent_tokens=*/true);
                    });
}

void Engine::ListSessions(std::string owner, std::string after, int limit,
                          Done<std::vector<SessionInfo>> done) {
  Call<std::vector<SessionInfo>>(std::move(done),
                                 [this, owner = std::move(owner), after = std::move(after),
                                  limit]() -> absl::StatusOr<std::vector<SessionInfo>> {
                                   std::vector<SessionInfo> all;
                                   for (const auto& runner : runners_)
                                     runner->sessions().List(owner, after, limit, &all);
                                   std::sort(all.begin(), all.end(),
                                             [](const auto& a, const auto& b) { return a.id < b.id; });
                                   if (static_cast<int>(all.size()) > limit) all.resize(limit);
                                   return all;
                                 });
}

void Engine::DeleteSession(std::string id, std::string owner, std::string etag, Done<SessionInfo> done) {
  Call<SessionInfo>(std::move(done),
                    [this, id = std::move(id), owner = std::move(owner),
                     etag = std::move(etag)]() -> absl::StatusOr<SessionInfo> {
                      WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(id, owner));
                      return runner->sessions().Delete(id, owner, etag);
                    });
}

void Engine::ForkSession(std::string parent, std::string owner, std::string etag, std::string child,
                         Done<SessionInfo> done) {
  if (draining()) return RefuseAtOnce(Draining(), &metrics_, &done);
  Call<SessionInfo>(
      std::move(done),
      [this, parent = std::move(parent), owner = std::move(owner), etag = std::move(etag),
       child = std::move(child)]() -> absl::StatusOr<SessionInfo> {
        WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(parent, owner));
        SessionTable& sessions = runner->sessions();
        WEIR_ASSIGN_OR_RETURN(const Session* original, sessions.Find(parent, owner));
        WEIR_RETURN_IF_ERROR(CheckNewSession(child, owner, sessions.StateBytes(original->sequence)));
        return sessions.Fork(parent, owner, etag, child, MonotonicNow());
      });
}

void Engine::Drain() { draining_.store(true, std::memory_order_release); }

bool Engine::Idle() const {
  // A turn in the mailbox is counted here until its runner counts it, so the order of the reads matters.
  if (submitting_.load() != 0) return false;
  return std::all_of(runners_.begin(), runners_.end(),
                     [](const auto& runner) { return runner->outstanding().load() == 0; });
}

void Engine::Stop() {
  Drain();
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
  if (notifier_ != nullptr) notifier_->Stop();
}

std::vector<RunnerStats> Engine::Stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

const RunnerMetrics& Engine::metrics(int model) const { return runners_[model]->metrics(); }

std::vector<std::string> Engine::Warnings() const {
  std::vector<std::string> warnings;
  for (size_t i = 0; i < runners_.size(); ++i)
    if (const absl::Status failure = runners_[i]->step().recording_failure(); !failure.ok())
      warnings.push_back(fmt::format("models/{}: decode steps cannot be recorded and will be slower: {}",
                                     models_[i].name, std::string(failure.message())));
  return warnings;
}

// --- engine thread ---

absl::StatusOr<ModelRunner*> Engine::RunnerOf(const std::string& session, const std::string& owner) {
  for (const auto& runner : runners_)
    if (runner->sessions().Has(session, owner)) return runner.get();
  return runners_[0]->sessions().Find(session, owner).status();
}

absl::Status Engine::CheckNewSession(const std::string& session, const std::string& owner,
                                     int64_t state_bytes) const {
  for (const auto& runner : runners_) {
    if (runner->sessions().Has(session, owner))
      return MakeError(
          absl::StatusCode::kAlreadyExists, "SESSION_EXISTS",
          fmt::format("session {} exists already; choose another id or leave it empty", Quoted(session)),
          {{"session", "sessions/" + session}});
  }
  return CheckQuota(owner, 1, state_bytes);
}

absl::Status Engine::CheckQuota(const std::string& owner, int64_t new_sessions, int64_t new_bytes) const {
  if (!options_.quota_of || (new_sessions == 0 && new_bytes <= 0)) return absl::OkStatus();
  const OwnerQuota quota = options_.quota_of(owner);
  if (quota.max_sessions == 0 && quota.max_state_bytes == 0) return absl::OkStatus();
  SessionUse use;
  for (const auto& runner : runners_) {
    const SessionUse here = runner->UseOf(owner);
    use.sessions += here.sessions;
    use.state_bytes += here.state_bytes;
  }
  if (quota.max_sessions > 0 && use.sessions + new_sessions > quota.max_sessions)
    return MakeError(absl::StatusCode::kResourceExhausted, "SESSION_QUOTA_EXCEEDED",
                     fmt::format("this key holds {} sessions and may hold {}; delete one or wait until one "
                                 "expires",
                                 use.sessions, quota.max_sessions),
                     {{"api_key", owner},
                      {"sessions", std::to_string(use.sessions)},
                      {"limit", std::to_string(quota.max_sessions)}},
                     absl::Seconds(1));
  if (quota.max_state_bytes > 0 && use.state_bytes + new_bytes > quota.max_state_bytes)
    return MakeError(
        absl::StatusCode::kResourceExhausted, "STATE_QUOTA_EXCEEDED",
        fmt::format("this call needs {} bytes of state; its key holds {} and may hold {}: delete a session, "
                    "wait until a turn ends, or ask for fewer tokens",
                    new_bytes, use.state_bytes, quota.max_state_bytes),
        {{"api_key", owner},
         {"needed", std::to_string(new_bytes)},
         {"state_bytes", std::to_string(use.state_bytes)},
         {"limit", std::to_string(quota.max_state_bytes)}},
        absl::Seconds(1));
  return absl::OkStatus();
}

void Engine::SubmitOnEngine(TurnParams params, std::shared_ptr<TokenStream> stream) {
  const absl::Time now = MonotonicNow();
  const auto fail = [&](absl::Status status) {
    metrics_.rejections.Add(status);
    if (stream->Fail(std::move(status))) wake_list_->streams.push_back(stream);
  };
  if (!lost_.ok()) {
    if (params.session.empty()) runners_[params.model]->outstanding().fetch_sub(1);
    return fail(lost_);
  }
  if (params.session.empty()) {
    ModelRunner& runner = *runners_[params.model];
    if (absl::Status refused = CheckQuota(params.owner, 0, runner.NewBytes(params)); !refused.ok()) {
      runner.outstanding().fetch_sub(1);
      return fail(std::move(refused));
    }
    runner.Submit(std::move(params), std::move(stream), now, wake_list_.get());
    return;
  }
  const absl::StatusOr<ModelRunner*> runner = RunnerOf(params.session, params.owner);
  if (!runner.ok()) return fail(runner.status());
  if (params.model >= 0 && runners_[params.model].get() != *runner)
    return fail(MakeError(absl::StatusCode::kInvalidArgument, "MODEL_MISMATCH",
                          fmt::format("session '{}' does not belong to model '{}'; leave the model empty",
                                      params.session, models_[params.model].name)));
  if (absl::Status refused = CheckQuota(params.owner, 0, (*runner)->NewBytes(params)); !refused.ok())
    return fail(std::move(refused));
  (*runner)->outstanding().fetch_add(1);
  (*runner)->Submit(std::move(params), std::move(stream), now, wake_list_.get());
}

void Engine::PublishStats() {
  MutexLock lock(&mu_);
  stats_.resize(runners_.size());
  for (size_t i = 0; i < runners_.size(); ++i) stats_[i] = runners_[i]->Stats();
}

bool Engine::WaitForWork(absl::Time next_event) {
  MutexLock lock(&mu_);
  while (mailbox_.empty() && !nudged_ && !stop_) {
    const absl::Duration wait = next_event - MonotonicNow();
    if (wait <= absl::ZeroDuration()) break;
    if (wait == absl::InfiniteDuration())
      wake_.Wait(&mu_);
    else
      wake_.WaitFor(&mu_, absl::ToChronoNanoseconds(wait));
  }
  nudged_ = false;
  std::swap(commands_, mailbox_);
  return !stop_;
}

absl::Status Engine::LoseDevice(const absl::Status& cause) {
  if (lost_.ok()) lost_ = DeviceLost(*device_, cause);
  return lost_;
}

bool Engine::StepModels(absl::Time* next_event) {
  const absl::Time now = MonotonicNow();
  bool computed = false;
  *next_event = absl::InfiniteFuture();
  for (const auto& runner : runners_) {
    const absl::StatusOr<bool> step = runner->Step(now, wake_list_.get());
    if (!step.ok()) {
      static_cast<void>(LoseDevice(step.status()));
      return false;
    }
    computed |= *step;
    *next_event = std::min(*next_event, runner->HasTurns() ? now + kLongestWait : runner->NextEvent());
  }
  return computed;
}

void Engine::Run() {
  FlushDenormalsOnThisThread();
  absl::Time next_event = absl::InfinitePast();
  while (WaitForWork(next_event)) {
    for (Command& command : commands_) command();
    commands_.clear();
    RunCopies();
    if (!lost_.ok()) break;
    const bool computed = StepModels(&next_event);
    if (!lost_.ok()) break;
    if (computed || !copies_.empty()) next_event = absl::InfinitePast();
    PostGarbage();
    PublishStats();
    notifier_->Post(wake_list_.get());
  }
  if (!lost_.ok()) StopMailbox();
  EndAll(lost_.ok() ? Draining() : lost_);
  if (!lost_.ok() && options_.on_device_lost)
    wake_list_->replies.push_back([this] { options_.on_device_lost(lost_); });
  notifier_->Post(wake_list_.get());
}

// A lost device is a stop that nobody asked for.
void Engine::StopMailbox() {
  Drain();
  MutexLock lock(&mu_);
  stop_ = true;
  stopped_by_ = lost_;
  std::swap(commands_, mailbox_);
}

void Engine::EndAll(const absl::Status& status) {
  for (Command& command : commands_) command();
  commands_.clear();
  for (Copy& copy : copies_) copy.give_up(status);
  copies_.clear();
  for (const auto& runner : runners_) runner->FailAll(status, wake_list_.get());
  PublishStats();
}

}  // namespace weir
