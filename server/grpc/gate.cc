#include "server/grpc/gate.h"

#include <chrono>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {

absl::StatusOr<CallInfo> Gate::Identify(const grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  CallInfo call;
  if (Authenticator* authenticator = access_.authenticator()) {
    std::vector<std::string_view> authorization;
    const auto [begin, end] = metadata.equal_range("authorization");
    for (auto it = begin; it != end; ++it) authorization.emplace_back(it->second.data(), it->second.size());
    WEIR_ASSIGN_OR_RETURN(Caller caller, authenticator->Admit(authorization, MonotonicNow()));
    call.owner = std::move(caller.name);
    call.max_request_tokens = caller.max_request_tokens;
  }
  const auto hint = metadata.find("x-session-id");
  if (hint != metadata.end()) call.session_hint.assign(hint->second.data(), hint->second.size());
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max())
    call.deadline = FromWallTime(absl::FromChrono(deadline));
  return call;
}

absl::StatusOr<AdmittedCall> Gate::Admit(const grpc::CallbackServerContext& context) const {
  AdmittedCall call;
  WEIR_ASSIGN_OR_RETURN(call.info, Identify(context));
  call.frontend = frontend_.load(std::memory_order_acquire);
  if (call.frontend == nullptr)
    return MakeError(absl::StatusCode::kUnavailable, "LOADING", "the models are being loaded; retry soon", {},
                     absl::Seconds(1));
  return call;
}

}  // namespace weir
