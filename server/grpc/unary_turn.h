// UnaryTurn: a call that runs a turn and answers once, when the turn has ended (Append, Score).
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "server/frontend/call_record.h"
#include "server/frontend/frontend.h"
#include "server/grpc/gate.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"

namespace weir {

// Owns itself until OnDone; like GenerateReactor, it blocks on no thread. The derived class says what to
// gather and, once, calls FinishCall().
class UnaryTurn : public grpc::ServerUnaryReactor, public TurnClient {
 public:
  const std::atomic<bool>& cancelled() const override { return cancelled_; }

  void OnStarted(StartedTurn turn) override {
    {
      MutexLock lock(&mu_);
      turn_ = std::make_unique<StartedTurn>(std::move(turn));
      record_.SetTurn(*turn_);
    }
    if (cancelled_.load()) CancelTurn();
    OnReadable();
  }
  void OnRefused(absl::Status status) override { FinishCall(status); }

  void OnReadable() override {
    {
      MutexLock lock(&mu_);
      if (!turn_ || ended_) return;
      // Until nothing waits: only then will the stream wake this reader again.
      for (;;) {
        turn_->stream->Drain(&chunk_);
        if (chunk_.empty()) return;
        record_.Add(chunk_, MonotonicNow());
        OnChunk(*turn_, chunk_);
        if (chunk_.last()) break;
      }
      ended_ = true;
      turn_->ticket.Release();
    }
    // From here on nobody else looks at turn_ and chunk_.
    if (chunk_.error)
      FinishCall(absl::IsCancelled(*chunk_.error) && MonotonicNow() >= deadline_
                     ? CheckAlive(false, deadline_, "before the turn was complete")
                     : *chunk_.error);
    else
      OnFinish(*turn_, *chunk_.finish);
  }

 protected:
  // `self` is this.
  void Own(std::shared_ptr<UnaryTurn> self, absl::Time deadline) {
    self_ = std::move(self);
    deadline_ = deadline;
  }
  // Of an admitted call, before its turn begins.
  void Record(const AdmittedCall& call, std::string_view method, const std::string& session,
              const v1::Prompt& prompt) {
    record_ = CallRecord(&call.frontend->options().calls, method, call.info);
    record_.SetRequest(session, prompt);
  }
  void FinishCall(const absl::Status& status) {
    record_.End(status, MonotonicNow());
    Finish(ToGrpc(status));
  }
  std::shared_ptr<UnaryTurn> self() const { return self_; }

  // Under the lock: must be short.
  virtual void OnChunk(const StartedTurn& turn, const StreamChunk& chunk) = 0;
  // The turn ended well. Calls FinishCall(), now or later.
  virtual void OnFinish(const StartedTurn& turn, const weir::Finish& finish) = 0;

 private:
  void OnCancel() override {
    TakeOver(this);
    cancelled_.store(true);
    CancelTurn();
    HandOver(this);
  }
  void OnDone() override {
    TakeOver(this);
    const std::shared_ptr<UnaryTurn> last = std::move(self_);
  }

  void CancelTurn() {
    std::shared_ptr<TokenStream> stream;
    {
      MutexLock lock(&mu_);
      if (turn_) stream = turn_->stream;
    }
    if (stream) stream->Cancel();
  }

  std::shared_ptr<UnaryTurn> self_;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::atomic<bool> cancelled_{false};
  Mutex mu_;
  std::unique_ptr<StartedTurn> turn_;  // guarded by mu_ until ended_
  StreamChunk chunk_;                  // the same
  CallRecord record_;                  // the same
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir
