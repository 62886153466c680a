#include "client/loadtest/capacity.h"

#include <limits>
#include <utility>

#include "client/loadtest/fan_out.h"
#include "client/loadtest/seeded_draws.h"
#include "client/loadtest/turn_record.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "weir/v1/server_info.pb.h"

namespace weir {
namespace {

// Nobody answers there any more; what a server says of itself has a reason of its own.
bool IsLoss(const absl::Status& status) {
  const std::string reason = GetErrorDetails(status).reason;
  return absl::IsUnavailable(status) && (reason.empty() || reason == kConnectionLost);
}

// The server refused, as far as is known.
bool IsRefusal(const absl::Status& status) {
  return !status.ok() && !IsLoss(status) && !absl::IsDeadlineExceeded(status) && !absl::IsCancelled(status);
}

}  // namespace

class CapacityPhase::Turn final : public TurnObserver {
 public:
  Turn(absl::Duration at, std::function<void(const TurnRecord&, const TurnResult&)> ended)
      : record_(at), ended_(std::move(ended)) {}
  void OnPromptInfo(absl::Duration, int64_t, int64_t) override {}
  void OnDelta(absl::Duration at, int64_t num_tokens, bool has_text) override {
    record_.Delta(at, num_tokens, has_text, [](int64_t, int64_t) {});
  }
  void OnEnd(absl::Duration, const TurnResult& end) override {
    const auto ended = std::move(ended_);
    ended(record_, end);  // this may be gone afterwards
  }

  std::unique_ptr<RunningTurn> handle;

 private:
  TurnRecord record_;
  std::function<void(const TurnRecord&, const TurnResult&)> ended_;
};

CapacityPhase::CapacityPhase(CapacityOptions options, Loop* loop, Transport* transport)
    : options_(std::move(options)),
      loop_(loop),
      transport_(transport),
      pool_(options_.model, loop, transport) {}

CapacityPhase::~CapacityPhase() = default;

void CapacityPhase::Start(LoopTask done) {
  done_ = std::move(done);
  ReadServer([this](const MemorySample&, int64_t slots_total, int64_t slots_free, int64_t) {
    figures_.slots = slots_total;
    figures_.slots_free = slots_free;
    Open(slots_free);
  });
}

void CapacityPhase::Interrupt() {
  interrupted_ = true;
  for (const auto& turn : turns_)
    if (turn != nullptr && turn->handle != nullptr) turn->handle->Cancel();
}

void CapacityPhase::Fail(std::string why) {
  if (figures_.failure.empty()) figures_.failure = std::move(why);
}

void CapacityPhase::Fail(std::string_view what, const absl::Status& status) {
  if (IsLoss(status) && lost_.ok()) lost_ = status;
  Fail(fmt::format("{}: {}", what, std::string(status.message())));
}

void CapacityPhase::ReadServer(WithSample then) {
  transport_->GetServerInfo(kShortCall, [this, then = std::move(then)](absl::Duration,
                                                                       const absl::Status& status,
                                                                       const v1::ServerInfo& info) {
    const absl::StatusOr<MemorySample> sample = status.ok() ? ReadWitnesses(info, options_.model) : status;
    if (!sample.ok()) Fail("the server did not say what it holds", sample.status());
    if (Stopping()) return Finish();
    for (const v1::ModelUse& use : info.models())
      if (use.model().name() == "models/" + options_.model)
        return then(*sample, use.slots_total(), use.slots_free(), use.steps());
  });
}

void CapacityPhase::Open(int64_t slots_free) {
  const absl::Duration start = loop_->Now();
  pool_.Create(
      std::numeric_limits<int64_t>::max(), [this] { return Stopping(); },
      [this](absl::Duration took) { create_.Add(absl::ToInt64Nanoseconds(took)); },
      [this, start, slots_free] {
        figures_.sessions = pool_.size();
        figures_.create_seconds = absl::ToDoubleSeconds(loop_->Now() - start);
        figures_.create_ms = create_.Summary(1e6);
        if (IsRefusal(pool_.refused())) figures_.refused_with = ReasonOrCode(pool_.refused());
        if (Stopping()) return Finish();
        CheckRefusal(slots_free);
        ReadServer([this](const MemorySample&, int64_t, int64_t, int64_t steps) { Generate(steps); });
      });
}

void CapacityPhase::CheckRefusal(int64_t slots_free) {
  if (!absl::IsResourceExhausted(pool_.refused()))
    Fail(fmt::format("session {} failed, and not for want of room", pool_.size() + 1), pool_.refused());
  else if (pool_.size() != slots_free)
    Fail(fmt::format("the server said that {} slots are free, and took {} sessions ({})", slots_free,
                     pool_.size(), ReasonOrCode(pool_.refused())));
  else if (pool_.size() == 0)
    Fail(fmt::format("other sessions have all {} slots: end them first", figures_.slots.value_or(0)));
}

void CapacityPhase::Generate(int64_t steps_before) {
  const absl::Duration start = loop_->Now();
  turns_.resize(static_cast<size_t>(pool_.size()));
  figures_.with_token = 0;
  FanOut::Run(
      pool_.size(), kCallsAtOnce,
      [this](int64_t index, std::function<void()> done) { StartTurn(index, std::move(done)); },
      [this] { return interrupted_ || !lost_.ok(); },
      [this, start, steps_before] {
        figures_.generate_seconds = absl::ToDoubleSeconds(loop_->Now() - start);
        figures_.first_token_ms = first_token_.Summary(1e6);
        ReadServer([this, steps_before](const MemorySample& sample, int64_t, int64_t, int64_t steps) {
          // Of paged state a session has nothing before its first token.
          figures_.arena_bytes = sample.arena;
          figures_.resident_bytes = sample.resident;
          figures_.steps = steps - steps_before;
          if (steps > steps_before)
            figures_.step_ms = 1e3 * *figures_.generate_seconds / static_cast<double>(steps - steps_before);
          OneMore();
        });
      });
}

void CapacityPhase::StartTurn(int64_t index, std::function<void()> done) {
  SeededDraws draws(options_.seed, SeededDraws::Purpose::kPrompt, static_cast<uint64_t>(index));
  TurnRequest request;
  request.session = pool_.id(index);
  request.prompt.token_ids = {static_cast<int32_t>(draws.Below(static_cast<uint64_t>(options_.vocab_size)))};
  request.max_tokens = 1;
  request.seed = options_.seed;
  ++running_;
  auto& turn = turns_[static_cast<size_t>(index)];
  turn = std::make_unique<Turn>(
      loop_->Now(), [this, index, done = std::move(done)](const TurnRecord& record, const TurnResult& end) {
        if (const auto first = record.TimeToFirstToken()) first_token_.Add(absl::ToInt64Nanoseconds(*first));
        if (record.tokens() > 0) ++*figures_.with_token;
        if (!end.status.ok() && !interrupted_ && errors_++ == 0)
          Fail("a session generated nothing", end.status);
        --running_;
        turns_[static_cast<size_t>(index)].reset();
        done();
      });
  turn->handle = transport_->StartTurn(std::move(request), turn.get());
}

void CapacityPhase::OneMore() {
  if (figures_.with_token != figures_.sessions)
    Fail(fmt::format("{} of {} sessions generated a token", *figures_.with_token, *figures_.sessions));
  pool_.CreateOne([this](const absl::Status& status, absl::Duration) {
    if (status.ok() || absl::IsResourceExhausted(status)) figures_.refused_again = !status.ok();
    if (status.ok()) Fail("a session beyond the last was accepted");
    if (!status.ok() && !figures_.refused_again)
      Fail("one session more failed, and not for want of room", status);
    if (Stopping()) return Finish();
    DeleteOne();
  });
}

void CapacityPhase::DeleteOne() {
  pool_.DeleteLast([this](const absl::Status& status) {
    if (!status.ok()) Fail("a session could not be deleted", status);
    if (Stopping()) return Finish();
    pool_.CreateOne([this](const absl::Status& again, absl::Duration) {
      if (again.ok() || IsRefusal(again)) figures_.accepted_after_delete = again.ok();
      if (!again.ok()) Fail("no session was accepted after one was deleted", again);
      Finish();
    });
  });
}

void CapacityPhase::Finish() {
  pool_.DeleteAll([this] {
    if (lost_.ok()) lost_ = pool_.lost();
    if (interrupted_)
      figures_.failure = "interrupted";
    else if (!lost_.ok())
      figures_.failure = fmt::format("{}; up to then {} sessions were opened, and {} of them had a token",
                                     std::string(lost_.message()), figures_.sessions.value_or(0),
                                     figures_.with_token.value_or(0));
    else if (pool_.left_behind() > 0)
      Fail(fmt::format("{} sessions could not be deleted: {}", pool_.left_behind(),
                       std::string(pool_.why_left().message())));
    loop_->Post(std::move(done_));
  });
}

std::vector<LiveRow> CapacityPhase::Live() const {
  LiveRow row;
  row.line = figures_.sessions
                 ? fmt::format("{} of {} sessions have a token, {} turns running, {} failed",
                               figures_.with_token.value_or(0), *figures_.sessions, running_, errors_)
                 : fmt::format("{} sessions open", pool_.size());
  return {row};
}

}  // namespace weir
