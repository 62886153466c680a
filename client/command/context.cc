#include "client/command/context.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "client/command/exit_status.h"
#include "client/command/json.h"
#include "client/connect.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr size_t kMaxKeyFileBytes = 4096;

absl::StatusOr<std::string> ApiKey(const Context& context) {
  if (context.api_key_file.empty()) return context.api_key;
  const auto refuse = [&](std::string_view why) {
    return UsageError(fmt::format("--api-key-file {}: {}", Quoted(context.api_key_file), why));
  };
  errno = 0;
  std::ifstream file(context.api_key_file, std::ios::binary);
  std::string key(kMaxKeyFileBytes + 1, '\0');
  file.read(key.data(), static_cast<std::streamsize>(key.size()));
  key.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  if (key.empty() && errno != 0) return refuse(std::strerror(errno));
  if (key.size() > kMaxKeyFileBytes) return refuse(fmt::format("is longer than {} bytes", kMaxKeyFileBytes));
  while (!key.empty() && std::string_view(" \t\r\n").find(key.back()) != std::string_view::npos)
    key.pop_back();
  if (key.empty()) return refuse("holds no key");
  return key;
}

}  // namespace

absl::StatusOr<ConnectOptions> Context::PrepareToConnect(absl::Duration default_timeout) {
  ConnectOptions options;
  WEIR_ASSIGN_OR_RETURN(options.api_key, ApiKey(*this));
  options.tls = tls;
  options.tls.enabled |= !tls.ca_file.empty() || !tls.cert_file.empty() || !tls.key_file.empty();
  if (!options.api_key.empty() && !options.tls.enabled && !IsLocal(TargetOf(server).value_or(server)))
    Note("weir: warning: the API key crosses the network in plaintext; use --tls");
  interrupt_.emplace(&cancel_, interrupt_grace);
  options.call_timeout = timeout.value_or(default_timeout);
  options.timeout = std::min(options.timeout, options.call_timeout);
  options.cancel = &cancel_;
  return options;
}

absl::Status Context::ConnectError(const absl::Status& status) {
  const std::string reason = GetErrorDetails(status).reason;
  if (reason == kTlsFilesInvalid || reason == kApiKeyMalformed)
    return UsageError(std::string(status.message()));
  return status;
}

absl::StatusOr<WeirClient> Context::Connect(absl::Duration default_timeout) {
  WEIR_ASSIGN_OR_RETURN(const ConnectOptions options, PrepareToConnect(default_timeout));
  absl::StatusOr<WeirClient> client = WeirClient::Connect(server, options);
  if (!client.ok()) return ConnectError(client.status());
  return client;
}

void Context::Report(const absl::Status& status) const {
  Note(json ? ErrorJson(status) : "weir: " + ErrorLine(status));
}

void Context::WriteJson(const google::protobuf::Message& message) {
  out.WriteLine(JsonLine(ToJson(message)));
}

absl::StatusOr<absl::Duration> ParseTime(const std::string& text) {
  absl::Duration duration;
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  if (!absl::ParseDuration(plain ? text + "s" : text, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration())
    return UsageError(fmt::format("{} is not a time above zero; write 30s, 1m30s or 500ms", Quoted(text)));
  return duration;
}

}  // namespace weir
