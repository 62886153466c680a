#include "server/grpc/generate_reactor.h"

#include <utility>

#include "runtime/base/clock.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"

namespace weir {

GenerateReactor* GenerateReactor::Start(absl::StatusOr<AdmittedCall> call, StreamWatch* watch,
                                        grpc::CallbackServerContext* context,
                                        const v1::GenerateRequest* request) {
  std::shared_ptr<GenerateReactor> reactor(new GenerateReactor(watch, context));
  reactor->self_ = reactor;
  watch->Add(reactor.get(), reactor);
  // gRPC made the message for this call alone and does not look at it again.
  reactor->request_.Swap(const_cast<v1::GenerateRequest*>(request));
  if (call.ok()) {
    reactor->deadline_ = call->info.deadline;
    {
      MutexLock lock(&reactor->mu_);
      reactor->record_ = CallRecord(&call->frontend->options().calls, "Generate", call->info);
      reactor->record_.SetRequest(reactor->request_.session(), reactor->request_.prompt());
    }
    call->frontend->Generate(reactor->request_, std::move(call->info), reactor);
  } else {
    reactor->OnRefused(call.status());
  }
  HandOver(reactor.get());
  return reactor.get();
}

void GenerateReactor::OnStarted(StartedTurn turn) {
  v1::GenerateRequest().Swap(&request_);
  {
    MutexLock lock(&mu_);
    turn_ = std::make_unique<StartedTurn>(std::move(turn));
    words_.emplace(turn_.get());
    record_.SetTurn(*turn_);
  }
  if (cancelled_.load()) CancelTurn();
  Pump();
}

void GenerateReactor::OnRefused(absl::Status status) {
  v1::GenerateRequest().Swap(&request_);
  {
    MutexLock lock(&mu_);
    status_ = std::move(status);
  }
  Pump();
}

void GenerateReactor::DrainStream() {
  // A stream wakes only a reader that found it empty, so whoever has nothing to write goes on until it is.
  do {
    turn_->stream->Drain(&chunk_);
    record_.Add(chunk_, MonotonicNow());
    words_->Add(chunk_, &messages_);
    if (broken_) messages_.clear();
  } while (messages_.empty() && !chunk_.last() && !chunk_.empty());
  if (!chunk_.last()) return;
  turn_->ticket.Release();
  status_ = chunk_.error.value_or(absl::OkStatus());
  // gRPC reports a deadline as a cancellation.
  if (absl::IsCancelled(*status_))
    if (absl::Status expired = CheckAlive(false, deadline_, "before the turn was complete"); !expired.ok())
      status_ = std::move(expired);
}

void GenerateReactor::Pump() {
  bool write = false;
  bool finish = false;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    if (writing_ || finished_) return;
    if (messages_.empty() && !status_ && turn_) DrainStream();
    if (!messages_.empty()) {
      message_ = std::move(messages_.front());
      messages_.pop_front();
      write = writing_ = true;
    } else if (!status_) {
      return;  // the stream wakes this reader
    }
    // The last message and the status travel together; an error keeps its own trip, as nothing may be lost.
    finish = messages_.empty() && status_ && (!write || status_->ok());
    finished_ = finish;
    if (finish) status = *status_;
    waiting_since_ = MonotonicNow();
  }
  // While gRPC reads the message here, the write may be over and the call done on another thread already.
  const std::shared_ptr<GenerateReactor> alive = shared_from_this();
  // Outside the lock: these calls may take gRPC's own.
  // No buffer hint although more may follow: with it the notice of a completed write was seen to wait for the
  // next event on the connection, half a minute on a quiet one.
  const grpc::WriteOptions options;
  if (write && finish)
    StartWriteAndFinish(&message_, options, ToGrpc(status));
  else if (write)
    StartWrite(&message_, options);
  else
    Finish(ToGrpc(status));
}

void GenerateReactor::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    waiting_since_ = absl::InfiniteFuture();
    if (!ok) {
      broken_ = true;
      messages_.clear();
    }
  }
  if (!ok) CancelTurn();
  Pump();
}

void GenerateReactor::OnCancel() {
  TakeOver(this);
  cancelled_.store(true);
  CancelTurn();
  HandOver(this);
}

void GenerateReactor::CancelTurn() {
  std::shared_ptr<TokenStream> stream;
  {
    MutexLock lock(&mu_);
    if (turn_) stream = turn_->stream;
  }
  if (stream) stream->Cancel();
}

void GenerateReactor::CancelIfStuck(absl::Time now, absl::Duration limit) {
  MutexLock lock(&mu_);
  if (!done_ && now - waiting_since_ > limit) context_->TryCancel();
}

void GenerateReactor::OnDone() {
  TakeOver(this);
  const std::shared_ptr<GenerateReactor> last = std::move(self_);
  watch_.Remove(this);
  MutexLock lock(&mu_);
  record_.End(status_.value_or(absl::OkStatus()), MonotonicNow());
  done_ = true;
}

}  // namespace weir
