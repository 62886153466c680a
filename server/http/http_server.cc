#include "server/http/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "fmt/format.h"
#include "runtime/base/address.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/listen_check.h"

namespace weir {
namespace {

// Bytes that a client still sends behind its request: closing at once would reset the answer on its way.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// Without a free descriptor the line of new connections would wake the loop again and again.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(200);
constexpr int kBacklog = 128;

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string Serialize(const HttpResponse& response, bool head) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
      response.status, ReasonPhrase(response.status), response.content_type, response.body.size());
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  if (!head) text += response.body;
  return text;
}

HttpResponse PlainAnswer(int status) {
  HttpResponse response;
  response.status = status;
  response.body = fmt::format("{}\n", ReasonPhrase(status));
  if (status == 405) response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return 0;
}

absl::StatusOr<Descriptor> Listen(const sockaddr* address, socklen_t size) {
  Descriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (socket.get() >= 0 && address->sa_family != AF_UNIX) {
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  if (socket.get() < 0 || bind(socket.get(), address, size) != 0 || listen(socket.get(), kBacklog) != 0)
    return absl::UnavailableError(std::strerror(errno));
  return socket;
}

absl::StatusOr<Descriptor> ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  WEIR_CHECK(path.size() < sizeof(address.sun_path));  // ParseAddress refuses longer ones
  std::memcpy(address.sun_path, path.data(), path.size());
  unlink(path.c_str());  // CheckListenAddress has seen that nobody answers there
  return Listen(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

// On every address of the host that can be had, all with one port; one at least.
absl::StatusOr<std::vector<Descriptor>> ListenOn(const Address& address) {
  std::vector<Descriptor> sockets;
  if (!address.path.empty()) {
    WEIR_ASSIGN_OR_RETURN(Descriptor socket, ListenUnix(address.path));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  int port = address.port.value_or(0);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &found); error != 0)
    return absl::UnavailableError(gai_strerror(error));
  absl::Status failure = absl::UnavailableError("the host has no address");
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) reinterpret_cast<sockaddr_in*>(each->ai_addr)->sin_port = htons(port);
    if (each->ai_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(each->ai_addr)->sin6_port = htons(port);
    absl::StatusOr<Descriptor> socket = Listen(each->ai_addr, each->ai_addrlen);
    if (!socket.ok()) {
      failure = socket.status();
      continue;
    }
    if (port == 0) port = PortOf(socket->get());
    sockets.push_back(*std::move(socket));
  }
  freeaddrinfo(found);
  if (sockets.empty()) return failure;
  return sockets;
}

}  // namespace

// All that the thread works on.
class HttpServer::Loop {
 public:
  Loop(std::vector<Descriptor> listeners, std::string socket_path, Handler handler, const HttpLimits& limits)
      : listeners_(std::move(listeners)),
        socket_path_(std::move(socket_path)),
        handler_(std::move(handler)),
        limits_(limits),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    WEIR_CHECK(stop_.get() >= 0);
  }
  ~Loop() {
    if (!socket_path_.empty()) unlink(socket_path_.c_str());
  }

  // Any thread.
  void Stop() const { eventfd_write(stop_.get(), 1); }
  int port() const { return PortOf(listeners_[0].get()); }

  void Run() {
    for (;;) {
      const absl::Time now = MonotonicNow();
      connections_.remove_if([&](const Connection& connection) { return now >= connection.deadline; });
      const absl::Time next = Prepare(now);
      // At most a day, and rounded up: a deadline that is near does not make the loop spin.
      const int64_t wait = next == absl::InfiniteFuture()
                               ? -1
                               : std::clamp<int64_t>((next - now) / absl::Milliseconds(1) + 1, 0, 86'400'000);
      if (poll(polled_.data(), polled_.size(), static_cast<int>(wait)) < 0 && errno != EINTR) {
        WEIR_CHECK(errno == ENOMEM || errno == EAGAIN);
        continue;
      }
      if (polled_[0].revents != 0) return;
      size_t i = 1 + listeners_.size();
      for (auto it = connections_.begin(); it != connections_.end(); ++i) {
        const bool ends = polled_[i].revents != 0 && !Advance(&*it);
        it = ends ? connections_.erase(it) : std::next(it);
      }
      for (size_t listener = 0; listener < listeners_.size(); ++listener)
        if (polled_[1 + listener].revents != 0) Accept(listeners_[listener].get());
    }
  }

 private:
  enum class State { kReading, kWriting, kFarewell };
  struct Connection {
    Descriptor socket;
    State state = State::kReading;
    absl::Time deadline;
    std::string in;
    std::string out;
    size_t written = 0;
  };

  // Fills polled_: the stop signal, the listeners, the connections. The time of the next deadline.
  absl::Time Prepare(absl::Time now) {
    absl::Time next = absl::InfiniteFuture();
    const bool accepting = now >= accept_again_;
    if (!accepting) next = accept_again_;
    polled_.assign(1, {stop_.get(), POLLIN, 0});
    for (const Descriptor& listener : listeners_)
      polled_.push_back({accepting ? listener.get() : -1, POLLIN, 0});
    for (const Connection& connection : connections_) {
      const bool writes = connection.state == State::kWriting;
      polled_.push_back({connection.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      next = std::min(next, connection.deadline);
    }
    return next;
  }

  void Accept(int listener) {
    for (;;) {
      Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() < 0) {
        const bool wanting = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (wanting) accept_again_ = MonotonicNow() + kAcceptPause;
        return;
      }
      if (static_cast<int>(connections_.size()) >= limits_.max_connections) MakeRoom();
      Connection& connection = connections_.emplace_back();
      connection.socket = std::move(socket);
      connection.deadline = MonotonicNow() + limits_.request_time;
    }
  }

  // They stand in the order in which they came.
  void MakeRoom() {
    auto oldest = std::find_if(connections_.begin(), connections_.end(), [](const Connection& connection) {
      return connection.state != State::kWriting;
    });
    connections_.erase(oldest == connections_.end() ? connections_.begin() : oldest);
  }

  // False when it has ended.
  bool Advance(Connection* connection) {
    switch (connection->state) {
      case State::kReading:
        return Read(connection);
      case State::kWriting:
        return Write(connection);
      case State::kFarewell:
        break;
    }
    char thrown_away[4096];
    const ssize_t n = recv(connection->socket.get(), thrown_away, sizeof(thrown_away), 0);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }

  bool Read(Connection* connection) {
    char buffer[4096];
    const ssize_t n = recv(connection->socket.get(), buffer, sizeof(buffer), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    connection->in.append(buffer, static_cast<size_t>(n));
    const std::string_view in(connection->in);
    const auto parsed = ParseHttpRequest(in.substr(0, limits_.max_request_bytes));
    if (!parsed && in.size() < limits_.max_request_bytes) return true;
    const int status = parsed ? parsed->status : 431;
    const HttpResponse response = status == 200 ? handler_(parsed->request) : PlainAnswer(status);
    connection->out = Serialize(response, parsed && parsed->request.head);
    connection->in = std::string();
    connection->state = State::kWriting;
    connection->deadline = MonotonicNow() + limits_.answer_time;
    return Write(connection);
  }

  bool Write(Connection* connection) {
    while (connection->written < connection->out.size()) {
      const ssize_t n = send(connection->socket.get(), connection->out.data() + connection->written,
                             connection->out.size() - connection->written, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      connection->written += static_cast<size_t>(n);
    }
    shutdown(connection->socket.get(), SHUT_WR);
    connection->out = std::string();
    connection->state = State::kFarewell;
    connection->deadline = MonotonicNow() + kFarewell;
    return true;
  }

  const std::vector<Descriptor> listeners_;
  const std::string socket_path_;
  const Handler handler_;
  const HttpLimits limits_;
  const Descriptor stop_;
  std::list<Connection> connections_;
  std::vector<pollfd> polled_;
  absl::Time accept_again_ = absl::InfinitePast();
};

HttpServer::HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              std::string_view flag, Handler handler,
                                                              const HttpLimits& limits) {
  WEIR_RETURN_IF_ERROR(CheckListenAddress(listen, flag));
  WEIR_ASSIGN_OR_RETURN(const Address address, ParseAddress(listen));
  absl::StatusOr<std::vector<Descriptor>> listeners = ListenOn(address);
  if (!listeners.ok())
    return MakeError(absl::StatusCode::kFailedPrecondition, "ADDRESS_NOT_AVAILABLE",
                     fmt::format("cannot listen on {}: {}; choose another address with {}", Quoted(listen),
                                 std::string(listeners.status().message()), flag),
                     {{"listen", listen}});
  std::unique_ptr<HttpServer> server(new HttpServer);
  server->loop_ = std::make_unique<Loop>(*std::move(listeners), address.path, std::move(handler), limits);
  server->port_ = server->loop_->port();
  server->thread_ = std::thread([loop = server->loop_.get()] { loop->Run(); });
  return server;
}

HttpServer::~HttpServer() {
  if (!thread_.joinable()) return;
  loop_->Stop();
  thread_.join();
}

}  // namespace weir
