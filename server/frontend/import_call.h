// ImportCall: one ImportSession, message by message.
#pragma once

#include <memory>
#include <optional>

#include "runtime/engine/snapshot_intake.h"
#include "server/frontend/frontend.h"
#include "weir/v1/sessions.pb.h"

namespace weir {

// Owner: one call; used by one thread at a time.
class ImportCall {
 public:
  static constexpr size_t kMaxDataBytes = size_t{1} << 20;  // of one message, both ways

  ImportCall(Frontend* frontend, CallInfo call) : frontend_(*frontend), call_(std::move(call)) {}

  // Takes the next message. After an error the call is over.
  absl::Status Add(const v1::ImportSessionRequest& message);
  // After the last message. `reply` comes on the notifier's thread, or before this returns.
  void Finish(Reply<v1::Session> reply);

  int64_t received_bytes() const { return intake_ ? intake_->received_bytes() : 0; }

 private:
  absl::Status Begin(const v1::ImportSessionRequest& message);
  absl::Status Take(const v1::ImportSessionRequest& message);

  Frontend& frontend_;
  const CallInfo call_;
  Engine::CreateParams params_;
  std::optional<SnapshotIntake> intake_;
};

}  // namespace weir
