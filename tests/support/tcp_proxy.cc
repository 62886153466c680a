#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "fmt/format.h"
#include "runtime/base/check.h"

namespace weir::testing {
namespace {

constexpr int kLookMs = 20;  // at stop_ and frozen_

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Both directions of one connection; descriptors are the proxy's.
struct Pair {
  int client;
  int server;
  bool open = true;

  void Move(int from, int to) {
    char bytes[16384];
    const ssize_t n = read(from, bytes, sizeof(bytes));
    for (ssize_t sent = 0; sent < n;) {
      const ssize_t some = send(to, bytes + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
      if (some <= 0) break;
      sent += some;
    }
    if (n <= 0) Close();
  }
  void Close() {
    if (open) close(client), close(server);
    open = false;
  }
};

}  // namespace

TcpProxy::TcpProxy(int target_port) : target_port_(target_port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  WEIR_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 16) == 0);
  WEIR_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  stop_.store(true);
  thread_.join();
  close(listener_);
}

std::string TcpProxy::address() const { return fmt::format("127.0.0.1:{}", port_); }

void TcpProxy::Run() {
  std::vector<Pair> pairs;
  std::vector<pollfd> polled;
  while (!stop_.load()) {
    polled.assign(1, {listener_, POLLIN, 0});
    for (const Pair& pair : pairs) {
      polled.push_back({pair.client, POLLIN, 0});
      polled.push_back({pair.server, POLLIN, 0});
    }
    if (frozen_.load()) polled.clear();
    if (poll(polled.data(), polled.size(), kLookMs) <= 0 || frozen_.load()) continue;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (polled[1 + 2 * i].revents != 0) pairs[i].Move(pairs[i].client, pairs[i].server);
      if (pairs[i].open && polled[2 + 2 * i].revents != 0) pairs[i].Move(pairs[i].server, pairs[i].client);
    }
    std::erase_if(pairs, [](const Pair& pair) { return !pair.open; });
    if (polled[0].revents == 0) continue;
    Pair pair{accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
              socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in target = Loopback(target_port_);
    if (pair.client < 0 ||
        connect(pair.server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0)
      pair.Close();
    else
      pairs.push_back(pair);
  }
  for (Pair& pair : pairs) pair.Close();
}

}  // namespace weir::testing
