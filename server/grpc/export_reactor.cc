#include "server/grpc/export_reactor.h"

#include <utility>

#include "runtime/base/clock.h"
#include "server/frontend/session_calls.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"

namespace weir {

ExportReactor* ExportReactor::Start(absl::StatusOr<AdmittedCall> call, StreamWatch* watch,
                                    grpc::CallbackServerContext* context,
                                    const v1::ExportSessionRequest* request) {
  std::shared_ptr<ExportReactor> reactor(new ExportReactor(watch, context));
  reactor->self_ = reactor;
  watch->Add(reactor.get(), reactor);
  if (call.ok())
    reactor->Open(*std::move(call), *request);
  else
    reactor->End(call.status());
  HandOver(reactor.get());
  return reactor.get();
}

void ExportReactor::Open(AdmittedCall call, const v1::ExportSessionRequest& request) {
  frontend_ = call.frontend;
  deadline_ = call.info.deadline;
  record_ = CallRecord(&frontend_->options().calls, "ExportSession", call.info);
  record_.SetName(request.name());
  FieldViolations violations;
  std::string id = RequireSession("name", request.name(), call.info, &violations);
  if (!violations.empty()) return End(violations.ToStatus());
  frontend_->engine().ExportSession(
      std::move(id), call.info.owner, request.etag(),
      [this](absl::StatusOr<std::unique_ptr<Engine::Export>> opened) { OnOpened(std::move(opened)); });
}

void ExportReactor::OnOpened(absl::StatusOr<std::unique_ptr<Engine::Export>> opened) {
  if (!opened.ok()) return End(opened.status());
  export_ = *std::move(opened);
  total_ = remaining_ = export_->session().export_bytes;
  *message_.mutable_session() = SessionToProto(export_->session(), *frontend_);
  message_.set_total_bytes(total_);
  record_.SetModel(message_.session().model());
  Read();
}

void ExportReactor::Read() {
  export_->Read([this](absl::StatusOr<std::string> piece) { OnPiece(std::move(piece)); });
}

void ExportReactor::OnPiece(absl::StatusOr<std::string> piece) {
  if (!piece.ok()) return End(piece.status());
  remaining_ -= static_cast<int64_t>(piece->size());
  message_.set_data(*std::move(piece));
  {
    MutexLock lock(&mu_);
    writing_since_ = MonotonicNow();
  }
  // While gRPC reads the message here, the write may be over and the call done on another thread already.
  const std::shared_ptr<ExportReactor> alive = shared_from_this();
  if (remaining_ > 0) {
    HandOver(this);
    return StartWrite(&message_);
  }
  // The session is free again before the client learns that it has everything.
  export_.reset();
  HandOver(this);
  StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
}

void ExportReactor::OnWriteDone(bool ok) {
  TakeOver(this);
  {
    MutexLock lock(&mu_);
    writing_since_ = absl::InfiniteFuture();
  }
  if (!export_) return;  // that was the last one
  if (!ok) return End(CheckAlive(/*cancelled=*/true, deadline_, "during the export"));
  message_.Clear();
  Read();
}

void ExportReactor::End(const absl::Status& status) {
  export_.reset();
  status_ = status;
  HandOver(this);
  Finish(ToGrpc(status));
}

void ExportReactor::CancelIfStuck(absl::Time now, absl::Duration limit) {
  MutexLock lock(&mu_);
  if (!done_ && now - writing_since_ > limit) context_->TryCancel();
}

void ExportReactor::OnDone() {
  TakeOver(this);
  const std::shared_ptr<ExportReactor> last = std::move(self_);
  watch_.Remove(this);
  record_.SetBytes(total_ - remaining_);
  record_.End(status_, MonotonicNow());
  MutexLock lock(&mu_);
  done_ = true;
}

}  // namespace weir
