#include "runtime/base/error.h"

#include <optional>

#include "absl/strings/cord.h"
#include "fmt/format.h"

namespace weir {
namespace {

constexpr char kReasonUrl[] = "weir/reason";
constexpr char kMetadataUrl[] = "weir/metadata";  // key NUL value NUL …
constexpr char kRetryUrl[] = "weir/retry_ns";

}  // namespace

absl::Status MakeError(absl::StatusCode code, std::string_view reason, std::string_view message,
                       const ErrorMetadata& metadata, absl::Duration retry_after) {
  absl::Status status(code, absl::string_view(message.data(), message.size()));
  status.SetPayload(kReasonUrl, absl::Cord(absl::string_view(reason.data(), reason.size())));
  std::string packed;
  for (const auto& [key, value] : metadata) {
    packed.append(key).push_back('\0');
    packed.append(value).push_back('\0');
  }
  status.SetPayload(kMetadataUrl, absl::Cord(packed));
  if (retry_after > absl::ZeroDuration())
    status.SetPayload(kRetryUrl, absl::Cord(std::to_string(absl::ToInt64Nanoseconds(retry_after))));
  return status;
}

ErrorDetails GetErrorDetails(const absl::Status& status) {
  ErrorDetails details;
  if (const auto reason = status.GetPayload(kReasonUrl)) details.reason = std::string(*reason);
  if (const auto retry = status.GetPayload(kRetryUrl))
    details.retry_after = absl::Nanoseconds(std::stoll(std::string(*retry)));
  if (const auto packed = status.GetPayload(kMetadataUrl)) {
    const std::string text(*packed);
    size_t at = 0;
    while (at < text.size()) {
      const std::string key = text.c_str() + at;
      at += key.size() + 1;
      const std::string value = text.c_str() + at;
      at += value.size() + 1;
      details.metadata.emplace_back(key, value);
    }
  }
  return details;
}

std::string ReasonOrCode(const absl::Status& status) {
  std::string reason = GetErrorDetails(status).reason;
  return reason.empty() ? absl::StatusCodeToString(status.code()) : reason;
}

std::string Quoted(std::string_view text, size_t limit) {
  std::string out = "'";
  for (const char c : text) {
    if (out.size() > limit) return out + "…' (" + std::to_string(text.size()) + " bytes)";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\')
      out.push_back(c);
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  return out + "'";
}

}  // namespace weir
