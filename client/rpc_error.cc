#include "client/rpc_error.h"

#include <string>
#include <utility>

#include "fmt/format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

struct Details {
  bool answered = false;  // somebody above the transport wrote this status
  std::string reason;
  ErrorMetadata metadata;
  absl::Duration retry_after;
};

Details ReadDetails(const std::string& serialized) {
  Details details;
  google::rpc::Status rpc;
  if (serialized.empty() || !rpc.ParseFromString(serialized)) return details;
  for (const google::protobuf::Any& any : rpc.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    google::rpc::BadRequest bad;
    if (any.UnpackTo(&info)) {
      details.answered = true;
      details.reason = info.reason();
      for (const auto& [key, value] : info.metadata()) details.metadata.emplace_back(key, value);
    } else if (any.UnpackTo(&retry)) {
      details.retry_after =
          absl::Seconds(retry.retry_delay().seconds()) + absl::Nanoseconds(retry.retry_delay().nanos());
    } else if (any.UnpackTo(&bad)) {
      for (const auto& violation : bad.field_violations())
        details.metadata.emplace_back("field " + violation.field(), violation.description());
    }
  }
  return details;
}

// The server's GOAWAY says too_many_pings, gRPC's text about it "Too many pings".
bool RefusesPings(std::string_view message) {
  return message.find("oo many pings") != std::string_view::npos ||
         message.find("oo_many_pings") != std::string_view::npos;
}

// What a proxy in between makes of a server that is gone: a reset of the stream (nginx: INTERNAL), an end
// without a status (HAProxy: UNKNOWN), or, for a new call, an answer of HTTP.
std::string BehindProxy(absl::StatusCode code, std::string_view message, std::string_view address) {
  const auto says = [&](std::string_view words) { return message.find(words) != std::string_view::npos; };
  if (code == absl::StatusCode::kUnavailable && says("http2 header with status: 50"))
    return fmt::format("the proxy at {} reaches no Weir server ({}); try again when one is back", address,
                       message);
  const bool broken = code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown;
  if (broken && (says("RST_STREAM") || says("Stream removed")))
    return fmt::format(
        "the answer from {} broke off ({}): the server behind that proxy has ended, and its sessions with "
        "it, or "
        "the proxy cut the stream; try again",
        address, message);
  return "";
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status, std::string_view address) {
  if (status.ok()) return absl::OkStatus();
  Details details = ReadDetails(status.error_details());
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string message = status.error_message();
  if (!details.answered) {
    if (code == absl::StatusCode::kUnavailable && RefusesPings(message)) {
      details.reason = kConnectionLost;
      message = fmt::format(
          "the server at {} closed the connection, as this client pings it too often: set keepalive to 10s "
          "or "
          "more, or what the server has as --min-ping-interval ({})",
          address, message);
    } else if (std::string text = BehindProxy(code, message, address); !text.empty()) {
      details.reason = kConnectionLost;
      message = std::move(text);
    } else if (code == absl::StatusCode::kUnavailable) {
      details.reason = kConnectionLost;
      message = fmt::format(
          "lost the connection to the Weir server at {} ({}); sessions stand at their last "
          "generated token",
          address, message);
    } else if (code == absl::StatusCode::kDeadlineExceeded) {
      details.reason = kDeadlinePassed;
      message = fmt::format(
          "the server at {} did not complete its answer within the time limit; allow more "
          "time or ask for less (weir info tells whether it waits for a free slot)",
          address);
    } else if (code == absl::StatusCode::kCancelled) {
      details.reason = kCallCancelled;
      message = "cancelled";
    } else if (code == absl::StatusCode::kResourceExhausted) {
      // Weir always gives a reason when it has no room: this is a limit of the transport.
      if (message.find("larger than max") != std::string::npos) {
        details.reason = kMessageTooLarge;
        message = fmt::format(
            "the request is larger than the server at {} takes in one message ({}): send it in parts, such "
            "as "
            "by appending to a session, or start the server with a larger --max-message-size",
            address, message);
      } else {
        message = fmt::format("the transport to {} refused the call: {}", address, message);
      }
    } else if (code == absl::StatusCode::kUnimplemented) {
      message = fmt::format(
          "{} does not know this call ({}): it is not a Weir server, or one of another "
          "version",
          address, message);
    }
  }
  if (message.empty()) message = absl::StatusCodeToString(code);
  return MakeError(code, details.reason, message, details.metadata, details.retry_after);
}

}  // namespace weir
