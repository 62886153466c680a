#include "server/grpc/import_reactor.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "server/frontend/names.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"

namespace weir {

ImportReactor* ImportReactor::Start(absl::StatusOr<AdmittedCall> call, StreamWatch* watch,
                                    v1::Session* response) {
  std::shared_ptr<ImportReactor> reactor(new ImportReactor(watch, response));
  reactor->self_ = reactor;
  watch->Add(reactor.get(), reactor);
  if (!call.ok()) {
    reactor->End(call.status());
    HandOver(reactor.get());
    return reactor.get();
  }
  {
    MutexLock lock(&reactor->mu_);
    reactor->record_ = CallRecord(&call->frontend->options().calls, "ImportSession", call->info);
    reactor->waiting_since_ = MonotonicNow();
  }
  reactor->call_.emplace(call->frontend, std::move(call->info));
  reactor->StartRead(&reactor->message_);
  HandOver(reactor.get());
  return reactor.get();
}

void ImportReactor::OnReadDone(bool ok) {
  TakeOver(this);
  {
    MutexLock lock(&mu_);
    if (ended_) return;
  }
  if (ok) {
    const absl::Status status = call_->Add(message_);
    {
      MutexLock lock(&mu_);
      if (ended_) return;
      if (!message_.session_id().empty()) record_.SetName(SessionName(message_.session_id()));
      if (message_.has_session()) record_.SetModel(message_.session().model());
      received_bytes_ = call_->received_bytes();
      if (received_bytes_ - noted_bytes_ >= kProgressBytes) {
        noted_bytes_ = received_bytes_;
        waiting_since_ = MonotonicNow();
      }
    }
    if (!status.ok()) return End(status);
    HandOver(this);
    return StartRead(&message_);
  }
  {
    MutexLock lock(&mu_);
    waiting_since_ = absl::InfiniteFuture();
  }
  call_->Finish([keep = self_](absl::StatusOr<v1::Session> session) { keep->OnSession(std::move(session)); });
}

void ImportReactor::OnSession(absl::StatusOr<v1::Session> session) {
  {
    MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;  // cancelled: gRPC's response may be gone
    if (session.ok()) {
      record_.SetName(session->name());
      record_.SetModel(session->model());
    }
    LogEnd(session.status());
    if (session.ok()) response_ = *std::move(session);
  }
  HandOver(this);
  Finish(ToGrpc(session.status()));
}

void ImportReactor::OnCancel() {
  TakeOver(this);
  End(absl::CancelledError("the client cancelled the import"));
}

void ImportReactor::LogEnd(const absl::Status& status) {
  record_.SetBytes(received_bytes_);
  record_.End(status, MonotonicNow());
}

void ImportReactor::End(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
    LogEnd(status);
  }
  HandOver(this);
  Finish(ToGrpc(status));
}

void ImportReactor::CancelIfStuck(absl::Time now, absl::Duration limit) {
  {
    MutexLock lock(&mu_);
    if (ended_ || now - waiting_since_ <= limit) return;
  }
  End(MakeError(absl::StatusCode::kResourceExhausted, "CLIENT_TOO_SLOW",
                fmt::format("less than {} bytes came within {}; the import has ended", kProgressBytes,
                            absl::FormatDuration(limit))));
}

void ImportReactor::OnDone() {
  TakeOver(this);
  const std::shared_ptr<ImportReactor> last = std::move(self_);
  watch_.Remove(this);
}

}  // namespace weir
