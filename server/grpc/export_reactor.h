// ExportReactor: one ExportSession call.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/base/mutex.h"
#include "server/frontend/call_record.h"
#include "server/frontend/frontend.h"
#include "server/grpc/gate.h"
#include "server/grpc/stream_watch.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {

// Owns itself until OnDone. Reads a piece from the engine, writes it, reads the next: one piece is in memory
// at a time, and a client that does not read holds nobody up but its session, until StreamWatch ends the
// call.
class ExportReactor final : public grpc::ServerWriteReactor<v1::ExportSessionResponse>,
                            public StreamWatch::Watched,
                            public std::enable_shared_from_this<ExportReactor> {
 public:
  static ExportReactor* Start(absl::StatusOr<AdmittedCall> call, StreamWatch* watch,
                              grpc::CallbackServerContext* context, const v1::ExportSessionRequest* request);

  void CancelIfStuck(absl::Time now, absl::Duration limit) override;

 private:
  ExportReactor(StreamWatch* watch, grpc::CallbackServerContext* context)
      : watch_(*watch), context_(context) {}

  void Open(AdmittedCall call, const v1::ExportSessionRequest& request);
  void OnOpened(absl::StatusOr<std::unique_ptr<Engine::Export>> opened);
  void Read();
  void OnPiece(absl::StatusOr<std::string> piece);
  void End(const absl::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override {}  // a write then fails, or the next one does
  void OnDone() override;

  StreamWatch& watch_;
  grpc::CallbackServerContext* const context_;  // gone after OnDone
  std::shared_ptr<ExportReactor> self_;         // until OnDone
  // One step of the call at a time uses these.
  Frontend* frontend_ = nullptr;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::unique_ptr<Engine::Export> export_;
  int64_t total_ = 0;
  int64_t remaining_ = 0;
  absl::Status status_;
  CallRecord record_;
  v1::ExportSessionResponse message_;

  Mutex mu_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time writing_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace weir
