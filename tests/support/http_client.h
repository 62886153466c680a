// HTTP as a test speaks it: whole requests, and connections that send what no client would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"

namespace weir::testing {

// A connection to a port of 127.0.0.1, or to a unix socket. Reads wait for a minute at most.
class HttpConnection {
 public:
  explicit HttpConnection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  explicit HttpConnection(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    WEIR_CHECK(path.size() < sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  HttpConnection(HttpConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HttpConnection& operator=(HttpConnection&&) = delete;
  ~HttpConnection() {
    if (fd_ >= 0) close(fd_);
  }
  // What the peer takes of it: it may have closed.
  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  // Until the peer closes.
  std::string ReadToEnd() const {
    std::string all;
    char buffer[65536];
    for (;;) {
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) return all;
      all.append(buffer, static_cast<size_t>(n));
    }
  }
  bool connected() const { return connected_; }

 private:
  void Connect(const sockaddr* address, socklen_t size) {
    const timeval patience = {60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    connected_ = connect(fd_, address, size) == 0;
  }
  int fd_;
  bool connected_ = false;
};

struct HttpAnswer {
  int status = 0;                              // 0: none that could be read
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

inline HttpAnswer ParseHttpAnswer(const std::string& text) {
  HttpAnswer answer;
  const size_t end = text.find("\r\n\r\n");
  if (text.substr(0, 9) != "HTTP/1.1 " || end == std::string::npos) return answer;
  answer.status = std::stoi(text.substr(9, 3));
  answer.body = text.substr(end + 4);
  for (size_t at = text.find("\r\n") + 2; at < end + 2;) {
    const size_t next = text.find("\r\n", at);
    const size_t colon = text.find(": ", at);
    std::string name = text.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    answer.headers[name] = text.substr(colon + 2, next - colon - 2);
    at = next + 2;
  }
  return answer;
}

inline HttpAnswer AnswerTo(const HttpConnection& connection, std::string_view request) {
  connection.Send(request);
  return ParseHttpAnswer(connection.ReadToEnd());
}

inline HttpAnswer HttpGet(int port, const std::string& path) {
  return AnswerTo(HttpConnection(port), "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

}  // namespace weir::testing
