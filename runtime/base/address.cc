#include "runtime/base/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>

#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

bool IsIpv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));  // %eth0: the interface of a link-local address
  in6_addr unused;
  return inet_pton(AF_INET6, address.c_str(), &unused) == 1;
}

// Nullopt for what is not a number from 0 to 65535.
std::optional<int> ParsePort(std::string_view text) {
  int port = 0;
  const char* const end = text.data() + text.size();
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits || std::from_chars(text.data(), end, port).ec != std::errc() || port > 65535)
    return std::nullopt;
  return port;
}

}  // namespace

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(fmt::format("{} {}", Quoted(text), why));
  };
  Address address;
  if (text.substr(0, kUnix.size()) == kUnix) {
    address.path = std::string(text.substr(kUnix.size()));
    if (address.path.empty()) return refuse("names no socket");
    if (address.path.size() > kMaxPath)
      return refuse(
          fmt::format("has a path of {} bytes; a socket's may have {}", address.path.size(), kMaxPath));
    return address;
  }
  std::string_view rest;  // behind the host: empty, or a colon and the port
  if (text.substr(0, 1) == "[") {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return refuse("has no closing bracket");
    address.host = std::string(text.substr(1, close - 1));
    if (!IsIpv6(address.host)) return refuse("has no IPv6 address in its brackets");
    rest = text.substr(close + 1);
    if (!rest.empty() && rest[0] != ':') return refuse("has something else than :PORT behind its bracket");
  } else {
    if (IsIpv6(text)) return refuse("is an IPv6 address without brackets");
    const size_t colon = std::min(text.find(':'), text.size());
    address.host = std::string(text.substr(0, colon));
    rest = text.substr(colon);
    if (address.host.empty()) return refuse("names no host");
  }
  if (rest.empty()) return address;
  address.port = ParsePort(rest.substr(1));
  if (!address.port) return refuse("has a port that is no number from 0 to 65535");
  return address;
}

}  // namespace weir
