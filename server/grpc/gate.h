// What the services know of a call beside its request, and where they find the frontend.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "server/frontend/frontend.h"

namespace weir {

// Deadline and `x-session-id`. The owner is empty: this version serves loopback and asks for no key.
CallInfo ReadCallInfo(const grpc::CallbackServerContext& context);

// Set once the models are loaded. Any thread.
class FrontendSlot {
 public:
  void Set(Frontend* frontend) { frontend_.store(frontend, std::memory_order_release); }
  // UNAVAILABLE with RetryInfo until then.
  absl::StatusOr<Frontend*> Get() const;

 private:
  std::atomic<Frontend*> frontend_{nullptr};
};

}  // namespace weir
