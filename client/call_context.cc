#include "client/call_context.h"

#include <algorithm>

#include "client/request_check.h"
#include "client/rpc_error.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr std::string_view kSessionPrefix = "sessions/";

}  // namespace

void PrepareCall(std::string_view session, const std::string& api_key, absl::Duration timeout,
                 grpc::ClientContext* context) {
  if (!api_key.empty()) context->AddMetadata("authorization", "Bearer " + api_key);
  if (!session.empty()) {
    if (session.substr(0, kSessionPrefix.size()) == kSessionPrefix) {
      session.remove_prefix(kSessionPrefix.size());
      session = session.substr(0, session.find('/'));  // of a snapshot's name, too, the session's part
    }
    // gRPC ends the process when it is given metadata of other characters than these.
    if (FitsSessionHint(session)) context->AddMetadata("x-session-id", std::string(session));
  }
  if (timeout < absl::InfiniteDuration())
    context->set_deadline(absl::ToChronoTime(ToWallTime(MonotonicNow() + timeout)));
}

absl::Status CheckApiKey(std::string_view key) {
  if (std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
    return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, kApiKeyMalformed,
                   "the API key holds blanks, line ends or characters that are not ASCII");
}

}  // namespace weir
