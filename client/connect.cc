#include "client/connect.h"

#include <algorithm>
#include <iterator>

#include "client/rpc_error.h"
#include "fmt/format.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "runtime/base/address.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);  // between two looks at the cancel token

constexpr absl::Duration kProbe = absl::Seconds(2);
constexpr std::string_view kOfTheNetwork[] = {"Connection refused",        "DNS resolution failed",
                                              "No such file or directory", "Permission denied",
                                              "No route to host",          "Network is unreachable"};

// gRPC's words for an answer in another protocol: without TLS, and with it.
constexpr std::string_view kOfOtherProtocols[] = {"Failed parsing HTTP/2", "http1.x server",
                                                  "missing selected ALPN"};

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

absl::Status Unreachable(std::string_view target, const std::string& message) {
  return MakeError(absl::StatusCode::kUnavailable, kUnreachable, message, {{"address", std::string(target)}});
}

absl::Status Refused(std::string_view target, std::string_view why) {
  return Unreachable(
      target, fmt::format("cannot reach a Weir server at {}{}: start one with weir-server --model FOLDER, or "
                          "name another address",
                          target, why.empty() ? "" : fmt::format(" ({})", why)));
}

// Somebody may have taken the connection: nothing says that there is no server.
absl::Status Silent(std::string_view target, absl::Duration timeout) {
  return Unreachable(
      target, fmt::format("no answer from {} within {}: it is busy or not a gRPC server, or the way to it "
                          "is blocked; try again, or name another address",
                          target, absl::FormatDuration(timeout)));
}

// The channel's state has no text; a call that fails at once has.
std::string WhyUnreachable(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(ToWallTime(MonotonicNow() + absl::Milliseconds(500))));
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = grpc::health::v1::Health::NewStub(channel)->Check(
      &context, grpc::health::v1::HealthCheckRequest(), &response);
  const std::string& text = status.error_message();
  for (const std::string_view known : kOfTheNetwork)
    if (text.find(known) != std::string::npos) return std::string(known);
  return text;
}

bool IsOfTheNetwork(std::string_view why) {
  return std::find(std::begin(kOfTheNetwork), std::end(kOfTheNetwork), why) != std::end(kOfTheNetwork);
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const TlsOptions& tls, const TlsFiles& files) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({files.ca, files.key, files.cert});
}

grpc::ChannelArguments ArgumentsFor(const std::string& target) {
  grpc::ChannelArguments arguments;
  // Whole answers (Score, Tokenize) grow with the prompt; the server bounds that.
  arguments.SetMaxReceiveMessageSize(-1);
  // A peer that vanished is noticed in the midst of a silent stream too; the server allows one ping per 10 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  // http_proxy is not meant for this machine itself.
  if (IsLocal(target)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

absl::Status Explain(const std::string& target, const TlsOptions& tls, const TlsFiles& files,
                     const std::shared_ptr<grpc::Channel>& channel) {
  const std::string why = WhyUnreachable(channel);
  // What the network said is the explanation; anything else may be TLS's doing.
  if (!IsOfTheNetwork(why))
    if (absl::Status status = ExplainTlsFailure(target, tls, files, kProbe); !status.ok()) return status;
  for (const std::string_view sign : kOfOtherProtocols)
    if (why.find(sign) != std::string::npos)
      return Unreachable(
          target, fmt::format("what answers at {} is no gRPC server: name the address that weir-server "
                              "says it listens on",
                              target));
  return Refused(target, why);
}

}  // namespace

bool IsLocal(std::string_view target) {
  const std::string_view host = target.substr(0, target.rfind(':'));
  const bool ipv4 = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return (ipv4 && StartsWith(host, "127.")) || StartsWith(target, "localhost:") ||
         StartsWith(target, "[::1]") || StartsWith(target, "unix:");
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& target, const TlsOptions& tls,
                                          const TlsFiles& files) {
  grpc::ChannelArguments arguments = ArgumentsFor(target);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, Credentials(tls, files), arguments);
}

absl::StatusOr<std::string> TargetOf(std::string_view text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  std::string why;
  if (!address.ok())
    why = std::string(address.status().message());
  else if (address->port == 0)
    why = fmt::format("{} has port 0, which no server has", Quoted(text));
  if (!why.empty())
    return MakeError(absl::StatusCode::kInvalidArgument, kInvalidAddress,
                     fmt::format("{}; write HOST:PORT, such as 127.0.0.1:{}, HOST, [IPV6]:PORT or unix:PATH",
                                 why, kDefaultPort));
  if (!address->path.empty() || address->port) return std::string(text);
  return fmt::format("{}:{}", text, kDefaultPort);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target, const TlsOptions& tls,
                                                           const TlsFiles& files, absl::Duration timeout,
                                                           const CancelToken* cancel) {
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(target, Credentials(tls, files), ArgumentsFor(target));

  const absl::Time deadline = MonotonicNow() + timeout;
  for (;;) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return channel;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN)
      return Explain(target, tls, files, channel);
    if (cancel != nullptr && cancel->cancelled())
      return MakeError(absl::StatusCode::kCancelled, kCallCancelled, "cancelled");
    const absl::Time now = MonotonicNow();
    if (now >= deadline) return Silent(target, timeout);
    channel->WaitForStateChange(state, absl::ToChronoTime(ToWallTime(std::min(deadline, now + kLook))));
  }
}

}  // namespace weir
