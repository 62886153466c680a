// GenerateReactor: one Generate call, from the first byte of the request to OnDone.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/base/mutex.h"
#include "server/frontend/call_record.h"
#include "server/frontend/frontend.h"
#include "server/frontend/turn_messages.h"
#include "server/grpc/gate.h"
#include "server/grpc/stream_watch.h"
#include "weir/v1/generation.grpc.pb.h"

namespace weir {

// Owns itself until OnDone. At most one write is in flight, everything else waits in the TokenStream, and
// gRPC's Finish is called exactly once, from Pump(). Its methods run on gRPC's threads, on the frontend's
// (OnStarted, OnRefused) and on the notifier's (OnReadable); none of them blocks.
class GenerateReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                              public TurnClient,
                              public StreamWatch::Watched,
                              public std::enable_shared_from_this<GenerateReactor> {
 public:
  // Takes the contents of `request` away, so that a long prompt is not kept for the length of the answer.
  static GenerateReactor* Start(absl::StatusOr<AdmittedCall> call, StreamWatch* watch,
                                grpc::CallbackServerContext* context, const v1::GenerateRequest* request);

  const std::atomic<bool>& cancelled() const override { return cancelled_; }
  void OnStarted(StartedTurn turn) override;
  void OnRefused(absl::Status status) override;
  void OnReadable() override { Pump(); }
  void CancelIfStuck(absl::Time now, absl::Duration limit) override;

 private:
  GenerateReactor(StreamWatch* watch, grpc::CallbackServerContext* context)
      : watch_(*watch), context_(context) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Moves on whatever can move on: drains the stream, starts the next write, or finishes.
  void Pump();
  void DrainStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelTurn();

  StreamWatch& watch_;
  grpc::CallbackServerContext* const context_;  // gone after OnDone
  std::shared_ptr<GenerateReactor> self_;       // until OnDone
  v1::GenerateRequest request_;                 // until the frontend has read it
  absl::Time deadline_ = absl::InfiniteFuture();
  std::atomic<bool> cancelled_{false};

  Mutex mu_;
  std::unique_ptr<StartedTurn> turn_ ABSL_GUARDED_BY(mu_);
  std::optional<TurnMessages> words_ ABSL_GUARDED_BY(mu_);
  CallRecord record_ ABSL_GUARDED_BY(mu_);
  StreamChunk chunk_ ABSL_GUARDED_BY(mu_);                          // scratch
  std::deque<v1::GenerateResponse> messages_ ABSL_GUARDED_BY(mu_);  // drained, not yet written
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);         // how the call ends, after messages_
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // a write failed: nobody is there
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // for gRPC
  v1::GenerateResponse message_;  // the write in flight; whoever sets writing_ owns it
};

}  // namespace weir
