// What every call to a server carries beside its request.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"

namespace weir {

// The key, where there is one; x-session-id from a session's or snapshot's name or id, for routers; and the
// deadline, unless `timeout` is infinite.
void PrepareCall(std::string_view session, const std::string& api_key, absl::Duration timeout,
                 grpc::ClientContext* context);

// INVALID_ARGUMENT (API_KEY_MALFORMED) for a key that cannot travel.
absl::Status CheckApiKey(std::string_view key);

}  // namespace weir
