#include "client/command/context.h"

#include <algorithm>

#include "client/command/exit_status.h"
#include "client/command/json.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {

absl::StatusOr<WeirClient> Context::Connect(absl::Duration default_timeout) {
  interrupt_.emplace(&cancel_);
  ConnectOptions options;
  options.call_timeout = timeout.value_or(default_timeout);
  options.timeout = std::min(options.timeout, options.call_timeout);
  options.cancel = &cancel_;
  return WeirClient::Connect(server, options);
}

void Context::WriteJson(const google::protobuf::Message& message) {
  out.WriteLine(JsonLine(ToJson(message)));
}

absl::StatusOr<absl::Duration> ParseTime(const std::string& text) {
  absl::Duration duration;
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  if (!absl::ParseDuration(plain ? text + "s" : text, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration())
    return UsageError(fmt::format("{} is not a time; write 30s, 1m30s or 500ms", Quoted(text)));
  return duration;
}

}  // namespace weir
