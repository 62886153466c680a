#include "server/grpc/gate.h"

#include <chrono>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/frontend/call_record.h"

namespace weir {

absl::StatusOr<CallInfo> Gate::Identify(grpc::CallbackServerContext& context) const {
  absl::StatusOr<CallInfo> call = ReadCall(context);
  if (!call.ok()) rejections_.Add(call.status());
  return call;
}

absl::StatusOr<CallInfo> Gate::ReadCall(grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  CallInfo call;
  call.arrival = MonotonicNow();
  const auto value_of = [&](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string_view()
                                   : std::string_view(found->second.data(), found->second.size());
  };
  call.request_id = UsableRequestId(value_of("x-request-id"));
  call.trace_id = TraceIdOf(value_of("traceparent"));
  context.AddInitialMetadata("x-request-id", call.request_id);
  if (Authenticator* authenticator = access_.authenticator()) {
    std::vector<std::string_view> authorization;
    const auto [begin, end] = metadata.equal_range("authorization");
    for (auto it = begin; it != end; ++it) authorization.emplace_back(it->second.data(), it->second.size());
    WEIR_ASSIGN_OR_RETURN(Caller caller, authenticator->Admit(authorization, call.arrival));
    call.owner = std::move(caller.name);
    call.max_request_tokens = caller.max_request_tokens;
  }
  call.session_hint = value_of("x-session-id");
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max())
    call.deadline = FromWallTime(absl::FromChrono(deadline));
  return call;
}

absl::StatusOr<AdmittedCall> Gate::Admit(grpc::CallbackServerContext& context) const {
  AdmittedCall call;
  WEIR_ASSIGN_OR_RETURN(call.info, Identify(context));
  call.frontend = frontend_.load(std::memory_order_acquire);
  if (call.frontend != nullptr) return call;
  absl::Status loading = MakeError(absl::StatusCode::kUnavailable, "LOADING",
                                   "the models are being loaded; retry soon", {}, absl::Seconds(1));
  rejections_.Add(loading);
  return loading;
}

}  // namespace weir
