// TcpProxy: bytes from a port of 127.0.0.1 to another and back, until it is frozen: then nothing moves any
// more, and neither side is told, as when a cable is cut.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace weir::testing {

class TcpProxy {
 public:
  explicit TcpProxy(int target_port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::string address() const;
  void Freeze() { frozen_.store(true); }

 private:
  void Run();

  const int target_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> frozen_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weir::testing
