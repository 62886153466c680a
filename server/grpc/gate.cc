#include "server/grpc/call_info.h"

#include <chrono>

#include "runtime/base/error.h"

namespace weir {

CallInfo ReadCallInfo(const grpc::CallbackServerContext& context) {
  CallInfo call;
  const auto hint = context.client_metadata().find("x-session-id");
  if (hint != context.client_metadata().end())
    call.session_hint.assign(hint->second.data(), hint->second.size());
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) call.deadline = absl::FromChrono(deadline);
  return call;
}

absl::StatusOr<Frontend*> FrontendSlot::Get() const {
  Frontend* frontend = frontend_.load(std::memory_order_acquire);
  if (frontend == nullptr)
    return MakeError(absl::StatusCode::kUnavailable, "LOADING", "the models are being loaded; retry soon", {},
                     absl::Seconds(1));
  return frontend;
}

}  // namespace weir
