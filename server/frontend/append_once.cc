// Frontend::AppendOnce: an Append that nobody can cut off half-way, so that its repeat can be answered.
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/mutex.h"
#include "server/frontend/frontend.h"
#include "server/frontend/session_calls.h"

namespace weir {
namespace {

// Keeps itself until it has finished. Its methods run on the frontend's and the notifier's threads.
class AppendCall final : public TurnClient {
 public:
  using Finish = RequestLog::Finish<v1::AppendSessionResponse>;

  static void Start(Frontend* frontend, const v1::AppendSessionRequest& request, CallInfo call,
                    Finish finish) {
    auto append = std::make_shared<AppendCall>(frontend, request, call.owner, std::move(finish));
    append->self_ = append;
    append->record_ = CallRecord(&frontend->options().calls, "AppendSession", call);
    append->record_.SetRequest(request.name(), request.prompt());
    call.deadline = absl::InfiniteFuture();
    frontend->Append(append->request_, std::move(call), append);
  }
  AppendCall(Frontend* frontend, const v1::AppendSessionRequest& request, std::string owner, Finish finish)
      : frontend_(*frontend), request_(request), owner_(std::move(owner)), finish_(std::move(finish)) {}

  const std::atomic<bool>& cancelled() const override { return cancelled_; }
  void OnStarted(StartedTurn turn) override {
    v1::AppendSessionRequest().Swap(&request_);
    {
      MutexLock lock(&mu_);
      record_.SetTurn(turn);
      turn_.emplace(std::move(turn));
    }
    OnReadable();
  }
  void OnRefused(absl::Status status) override { End(std::move(status)); }
  void OnReadable() override {
    {
      MutexLock lock(&mu_);
      if (!turn_ || ended_) return;
      do {
        turn_->stream->Drain(&chunk_);
        if (chunk_.empty()) return;
        admitted_ = admitted_ || chunk_.info;
        record_.Add(chunk_, MonotonicNow());
      } while (!chunk_.last());
      ended_ = true;
      turn_->ticket.Release();
    }
    // From here on nobody else looks at turn_ and chunk_.
    if (chunk_.error) return End(*chunk_.error);
    frontend_.engine().GetSession(turn_->session, owner_, [this](absl::StatusOr<SessionInfo> info) {
      if (!info.ok()) return End(info.status());
      v1::AppendSessionResponse response;
      response.set_appended_tokens(chunk_.finish->prompt_tokens);
      *response.mutable_session() = SessionToProto(*info, frontend_);
      End(std::move(response));
    });
  }

 private:
  void End(absl::StatusOr<v1::AppendSessionResponse> response) {
    const std::shared_ptr<AppendCall> last = std::move(self_);
    record_.End(response.status(), MonotonicNow());
    // What was refused before the session changed may be tried again.
    const bool remember = response.ok() || admitted_;
    finish_(std::move(response), remember);
  }

  Frontend& frontend_;
  v1::AppendSessionRequest request_;  // until it is tokenized
  const std::string owner_;
  Finish finish_;
  const std::atomic<bool> cancelled_{false};
  std::shared_ptr<AppendCall> self_;
  Mutex mu_;
  std::optional<StartedTurn> turn_;  // guarded by mu_ until ended_
  StreamChunk chunk_;                // the same
  bool admitted_ = false;            // the same
  CallRecord record_;                // the same
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

void Frontend::AppendOnce(const v1::AppendSessionRequest& request, const CallInfo& call,
                          Reply<v1::AppendSessionResponse> reply) {
  // The call that runs has a line of its own; one that gets the answer of another, or none, has this.
  CallRecord record(&options_.calls, "AppendSession", call);
  record.SetRequest(request.name(), v1::Prompt());
  const auto runs = std::make_shared<bool>(false);
  Reply<v1::AppendSessionResponse> logged = [runs, record = std::move(record), reply = std::move(reply)](
                                                absl::StatusOr<v1::AppendSessionResponse> response) mutable {
    if (!*runs) record.End(response.status(), MonotonicNow());
    reply(std::move(response));
  };
  FieldViolations violations;
  CheckRequestId(request.request_id(), &violations);
  if (!violations.empty()) return logged(violations.ToStatus());
  request_log_.Run<v1::AppendSessionResponse>(request, request.request_id(), call.owner, std::move(logged),
                                              [&](AppendCall::Finish finish) {
                                                *runs = true;
                                                AppendCall::Start(this, request, call, std::move(finish));
                                              });
}

}  // namespace weir
