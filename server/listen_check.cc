#include "server/listen_check.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/address.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/system_error.h"

namespace weir {
namespace {

struct Asked {
  const std::string& listen;
  std::string_view flag;
};

absl::Status Refuse(const Asked& asked, const std::string& why, bool in_use) {
  return MakeError(absl::StatusCode::kFailedPrecondition, in_use ? "ADDRESS_IN_USE" : "ADDRESS_NOT_AVAILABLE",
                   fmt::format("cannot listen on {}: {}; choose another address with {}",
                               Quoted(asked.listen), why, asked.flag),
                   {{"listen", asked.listen}});
}

// Closes itself.
class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status CheckUnix(const Asked& asked, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  WEIR_CHECK(path.size() < sizeof(address.sun_path));  // ParseAddress refuses longer ones
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* const raw = reinterpret_cast<const sockaddr*>(&address);
  struct stat found {};
  const Socket probe(AF_UNIX, SOCK_STREAM);
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) return Refuse(asked, "the path exists and is no socket", false);
    if (connect(probe.fd(), raw, sizeof(address)) == 0)
      return Refuse(asked, "another program listens there", true);
    if (errno == ECONNREFUSED) return absl::OkStatus();  // left behind by a program that is gone
    return Refuse(asked, SystemErrorText(errno), errno == EAGAIN);
  }
  if (bind(probe.fd(), raw, sizeof(address)) != 0) return Refuse(asked, SystemErrorText(errno), false);
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckListenAddress(const std::string& listen, std::string_view flag) {
  const Asked asked = {listen, flag};
  WEIR_ASSIGN_OR_RETURN(const Address address, ParseAddress(listen));
  if (!address.path.empty()) return CheckUnix(asked, address.path);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), fmt::format("{}", address.port.value_or(0)).c_str(), &hints, &found);
  if (error != 0)
    return Refuse(asked, fmt::format("{}: {}", Quoted(address.host), gai_strerror(error)), false);
  // gRPC is content with one of several.
  absl::Status status = absl::OkStatus();
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const Socket probe(each->ai_family, each->ai_socktype);
    const int on = 1;
    setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(probe.fd(), each->ai_addr, each->ai_addrlen) == 0) {
      status = absl::OkStatus();
      break;
    }
    status = Refuse(asked, errno == EADDRINUSE ? "another program has the port" : SystemErrorText(errno),
                    errno == EADDRINUSE);
  }
  freeaddrinfo(found);
  return status;
}

}  // namespace weir
