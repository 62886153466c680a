// ImportReactor: one ImportSession call.
#pragma once

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/base/mutex.h"
#include "server/frontend/call_record.h"
#include "server/frontend/import_call.h"
#include "server/grpc/gate.h"
#include "server/grpc/stream_watch.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {

// Owns itself until OnDone. A client that sends less than kProgressBytes within StreamWatch's limit is
// refused with CLIENT_TOO_SLOW, so that nobody holds memory by a trickle.
class ImportReactor final : public grpc::ServerReadReactor<v1::ImportSessionRequest>,
                            public StreamWatch::Watched {
 public:
  static constexpr int64_t kProgressBytes = int64_t{1} << 20;

  static ImportReactor* Start(absl::StatusOr<AdmittedCall> call, StreamWatch* watch, v1::Session* response);

  void CancelIfStuck(absl::Time now, absl::Duration limit) override;

 private:
  ImportReactor(StreamWatch* watch, v1::Session* response) : watch_(*watch), response_(*response) {}

  void OnSession(absl::StatusOr<v1::Session> session);
  // The first one counts.
  void End(const absl::Status& status);
  void LogEnd(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  StreamWatch& watch_;
  v1::Session& response_;
  std::shared_ptr<ImportReactor> self_;  // until OnDone
  // gRPC's threads, one read at a time.
  std::optional<ImportCall> call_;
  v1::ImportSessionRequest message_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int64_t received_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  CallRecord record_ ABSL_GUARDED_BY(mu_);
  int64_t noted_bytes_ ABSL_GUARDED_BY(mu_) = 0;                            // when waiting_since_ was set
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // for the client
};

}  // namespace weir
