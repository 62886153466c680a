#include "client/loadtest/session_pool.h"

#include <utility>

#include "client/loadtest/fan_out.h"
#include "client/session_id.h"

namespace weir {
namespace {

// A turn that was cancelled ends at the server's next step.
constexpr absl::Duration kWaitForTurn = absl::Seconds(20);
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

}  // namespace

SessionPool::SessionPool(std::string model, Loop* loop, Transport* transport)
    : model_(std::move(model)), loop_(loop), transport_(transport) {}

void SessionPool::CreateOne(std::function<void(const absl::Status&, absl::Duration took)> finished) {
  const absl::Duration sent = loop_->Now();
  const std::string id = RandomSessionId();
  transport_->CreateSession(model_, id, kShortCall,
                            [this, id, sent, finished = std::move(finished)](
                                absl::Duration at, const absl::StatusOr<SessionFacts>& session) {
                              if (session.ok()) ids_.push_back(id);
                              // A refusal is sure; for all else the answer may have been lost on its way.
                              if (!session.ok() && !absl::IsResourceExhausted(session.status()))
                                unknown_.push_back(id);
                              finished(session.status(), at - sent);
                            });
}

void SessionPool::Create(int64_t count, std::function<bool()> stop, Created created, LoopTask finished) {
  const auto create = [this, created = std::move(created)](int64_t, std::function<void()> done) {
    CreateOne([this, created, done = std::move(done)](const absl::Status& status, absl::Duration took) {
      if (status.ok()) created(took);
      if (refused_.ok()) refused_ = status;
      done();
    });
  };
  FanOut::Run(
      count - size(), kCallsAtOnce, create, [this, stop] { return !refused_.ok() || stop(); },
      std::move(finished));
}

void SessionPool::Delete(const std::string& id, absl::Duration until, std::function<void()> done) {
  transport_->DeleteSession(
      id, kShortCall, [this, id, until, done](absl::Duration at, const absl::Status& status) {
        if (absl::IsAborted(status) && at < until) {
          loop_->At(at + kLookAgain, [this, id, until, done] { Delete(id, until, done); });
          return;
        }
        if (status.ok() || absl::IsNotFound(status))
          --left_behind_;
        else if (why_left_.ok())
          why_left_ = status;
        if (absl::IsUnavailable(status)) lost_ = status;
        done();
      });
}

void SessionPool::DeleteAll(LoopTask finished) {
  std::vector<std::string> ids = std::exchange(ids_, {});
  ids.insert(ids.end(), unknown_.begin(), unknown_.end());
  unknown_.clear();
  const auto count = static_cast<int64_t>(ids.size());
  left_behind_ = count;
  const absl::Duration until = loop_->Now() + kWaitForTurn;
  const auto remove = [this, until, ids = std::move(ids)](int64_t index, std::function<void()> done) {
    Delete(ids[static_cast<size_t>(index)], until, std::move(done));
  };
  // A server that is lost answers none of them: one by one each would wait for its time limit.
  FanOut::Run(
      count, kCallsAtOnce, remove, [this] { return !lost_.ok(); }, std::move(finished));
}

void SessionPool::DeleteLast(std::function<void(const absl::Status&)> finished) {
  const std::string id = ids_.back();
  transport_->DeleteSession(
      id, kShortCall, [this, finished = std::move(finished)](absl::Duration, const absl::Status& status) {
        if (status.ok()) ids_.pop_back();
        finished(status);
      });
}

}  // namespace weir
