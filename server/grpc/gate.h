// Gate: every call passes it on the way to the frontend.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "server/access/access.h"
#include "server/frontend/frontend.h"

namespace weir {

struct AdmittedCall {
  Frontend* frontend = nullptr;
  CallInfo info;
};

// The only way to the frontend, so that no method can forget to ask for a key. Any thread.
class Gate {
 public:
  // `access` outlives this.
  explicit Gate(const Access* access) : access_(*access) {}

  // The models are loaded.
  void Open(Frontend* frontend) { frontend_.store(frontend, std::memory_order_release); }

  // Owner, deadline, ids. UNAUTHENTICATED or RESOURCE_EXHAUSTED (RATE_LIMITED) where keys are asked for. The
  // call's initial metadata gets its `x-request-id`.
  absl::StatusOr<CallInfo> Identify(grpc::CallbackServerContext& context) const;
  // The same; then UNAVAILABLE (LOADING) until Open().
  absl::StatusOr<AdmittedCall> Admit(grpc::CallbackServerContext& context) const;
  // What was refused here.
  const Rejections& rejections() const { return rejections_; }

 private:
  absl::StatusOr<CallInfo> ReadCall(grpc::CallbackServerContext& context) const;

  const Access& access_;
  mutable Rejections rejections_;
  std::atomic<Frontend*> frontend_{nullptr};
};

}  // namespace weir
