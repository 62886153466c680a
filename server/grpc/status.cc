#include "server/grpc/status.h"

#include <algorithm>
#include <optional>

#include "fmt/format.h"
#include "google/rpc/error_details.pb.h"
#include "runtime/base/error.h"
#include "server/frontend/violations.h"

namespace weir {
namespace {

constexpr size_t kMaxValue = 256;  // of one metadata value or field name

// Length of the valid UTF-8 character that `text` begins with; 0 when there is none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

std::string DefaultReason(absl::StatusCode code) { return absl::StatusCodeToString(code); }

std::optional<std::string> Find(const ErrorDetails& details, std::string_view key) {
  for (const auto& [name, value] : details.metadata)
    if (name == key) return CleanText(value, kMaxValue);
  return std::nullopt;
}

// Adds `detail` unless it would make the trailer too large.
void Pack(const google::protobuf::Message& detail, google::rpc::Status* out) {
  if (out->ByteSizeLong() + detail.ByteSizeLong() < kMaxDetailBytes) out->add_details()->PackFrom(detail);
}

void AddBadRequest(const absl::Status& status, google::rpc::Status* out) {
  google::rpc::BadRequest bad;
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    auto* entry = bad.add_field_violations();
    entry->set_field(CleanText(violation.field, kMaxValue));
    entry->set_description(CleanText(violation.description, kMaxValue));
    if (out->ByteSizeLong() + bad.ByteSizeLong() >= kMaxDetailBytes - 64) {
      bad.mutable_field_violations()->RemoveLast();
      break;
    }
  }
  if (bad.field_violations_size() > 0) Pack(bad, out);
}

void AddResource(const ErrorDetails& details, const std::string& text, google::rpc::Status* out) {
  for (const auto& [key, type] :
       {std::pair{"snapshot", "weir.v1/Snapshot"}, std::pair{"session", "weir.v1/Session"},
        std::pair{"model", "weir.v1/Model"}}) {
    const auto name = Find(details, key);
    if (!name) continue;
    google::rpc::ResourceInfo resource;
    resource.set_resource_type(type);
    resource.set_resource_name(*name);
    resource.set_description(CleanText(text, kMaxValue));
    return Pack(resource, out);
  }
}

void AddQuota(const ErrorDetails& details, const std::string& text, google::rpc::Status* out) {
  google::rpc::QuotaFailure quota;
  auto* violation = quota.add_violations();
  const auto key = Find(details, "api_key");
  violation->set_subject(key ? "api_key:" + *key : Find(details, "model").value_or("server"));
  violation->set_description(CleanText(text, kMaxValue));
  Pack(quota, out);
}

void AddPrecondition(const ErrorDetails& details, const std::string& text, google::rpc::Status* out) {
  google::rpc::PreconditionFailure failure;
  auto* violation = failure.add_violations();
  violation->set_type(details.reason);
  violation->set_subject(Find(details, "session").value_or(Find(details, "model").value_or("server")));
  violation->set_description(CleanText(text, kMaxValue));
  Pack(failure, out);
}

void AddRetry(absl::Duration after, google::rpc::Status* out) {
  google::rpc::RetryInfo retry;
  absl::Duration rest;
  retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(after, absl::Seconds(1), &rest));
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  Pack(retry, out);
}

}  // namespace

std::string CleanText(std::string_view text, size_t limit) {
  constexpr std::string_view kCut = "…";
  std::string out;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool plain = length > 1 || (length == 1 && first >= 0x20 && first != 0x7f);
    const std::string shown = plain ? std::string(text.substr(0, length)) : fmt::format("\\x{:02x}", first);
    if (out.size() + shown.size() + (text.size() > shown.size() ? kCut.size() : 0) > limit) {
      out.append(kCut);
      break;
    }
    out += shown;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(CleanText(std::string(status.message()), kMaxErrorText));
  if (status.ok()) return out;
  const ErrorDetails details = GetErrorDetails(status);
  google::rpc::ErrorInfo info;
  info.set_reason(details.reason.empty() ? DefaultReason(status.code()) : details.reason);
  info.set_domain(std::string(kErrorDomain));
  for (const auto& [key, value] : details.metadata)
    if (info.ByteSizeLong() < kMaxDetailBytes / 4)
      (*info.mutable_metadata())[CleanText(key, 64)] = CleanText(value, kMaxValue);
  out.add_details()->PackFrom(info);

  const std::string text(status.message());
  absl::Duration retry_after = details.retry_after;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      AddBadRequest(status, &out);
      break;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
      AddResource(details, text, &out);
      break;
    case absl::StatusCode::kResourceExhausted:
      if (details.reason != "CLIENT_TOO_SLOW") AddQuota(details, text, &out);
      break;
    case absl::StatusCode::kFailedPrecondition:
      AddPrecondition(details, text, &out);
      break;
    case absl::StatusCode::kUnavailable:
      if (retry_after <= absl::ZeroDuration()) retry_after = absl::Seconds(1);
      break;
    default:
      break;
  }
  if (retry_after > absl::ZeroDuration()) AddRetry(retry_after, &out);
  return out;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status rpc = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), rpc.message(), rpc.SerializeAsString());
}

}  // namespace weir
