#include "client/command/exit_status.h"

#include <vector>

#include "client/command/json.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr std::string_view kUsage = "USAGE";
constexpr std::string_view kClientTooSlow = "CLIENT_TOO_SLOW";

bool IsTls(std::string_view reason) {
  return reason == kTlsRequired || reason == kTlsNotSpoken || reason == kTlsUntrusted ||
         reason == kTlsNameMismatch || reason == kTlsClientRefused;
}

}  // namespace

absl::Status UsageError(std::string message) {
  return MakeError(absl::StatusCode::kInvalidArgument, kUsage, message);
}

int ExitStatusOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const std::string reason = GetErrorDetails(status).reason;
  if (reason == kUsage || reason == kInvalidAddress || reason == kInvalidText) return kExitUsage;
  if (reason == kUnreachable || reason == kConnectionLost || IsTls(reason)) return kExitUnreachable;
  if (status.code() == absl::StatusCode::kDeadlineExceeded) return kExitTimeout;
  // A reader that is too slow was not refused: it lost a turn that ran. Without a reason, or with ours, the
  // transport refused the call, and trying again later does not help.
  const bool server_refused = !reason.empty() && reason != kClientTooSlow && reason != kMessageTooLarge;
  if (status.code() == absl::StatusCode::kResourceExhausted && server_refused) return kExitCapacity;
  return kExitServerError;
}

std::string ErrorLine(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  std::vector<std::string> notes;
  const bool ours = details.reason.empty() || details.reason == kUsage || details.reason == kInvalidText ||
                    details.reason == kUnreachable || IsTls(details.reason);
  if (!ours) notes.push_back(details.reason);
  if (details.retry_after > absl::ZeroDuration())
    notes.push_back("try again in " + absl::FormatDuration(details.retry_after));
  std::string line(status.message());
  // The request's fields have other names on the command line.
  for (const std::string_view field : {"model: is empty", "session.model: is empty"})
    if (line.substr(0, field.size()) == field) line = "name a model with -m" + line.substr(field.size());
  if (!notes.empty()) line += fmt::format(" ({})", fmt::join(notes, "; "));
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return line;
}

std::string ErrorJson(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  Json error = {{"code", absl::StatusCodeToString(status.code())},
                {"reason", details.reason},
                {"message", std::string(status.message())}};
  error["metadata"] = Json::object();
  for (const auto& [key, value] : details.metadata) error["metadata"][key] = value;
  if (details.retry_after > absl::ZeroDuration())
    error["retry_after_seconds"] = absl::ToDoubleSeconds(details.retry_after);
  return JsonLine(Json{{"error", error}});
}

}  // namespace weir
