// Two weir-servers behind a real proxy, nginx or HAProxy, with the configuration that deploy/proxy ships.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "grpcpp/channel.h"
#include "tests/e2e/process.h"
#include "tests/support/temp_dir.h"

namespace weir::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSlow = true;
#else
inline constexpr bool kSlow = false;
#endif

// A connection of its own: gRPC would share one among channels to the same address.
std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address);

// weir-server on a unix socket, or on ADDRESS:PORT; it can be ended and started again there.
class Replica {
 public:
  Replica(std::string model_folder, std::string socket)
      : model_folder_(std::move(model_folder)), socket_(std::move(socket)) {}
  // Until it is ready.
  void Start(absl::Duration drain_delay);
  Process& process() { return *process_; }
  std::string address() const { return (socket_[0] == '/' ? "unix:" : "") + socket_; }
  const std::string& socket() const { return socket_; }
  WeirClient Connect() const;

 private:
  const std::string model_folder_, socket_;
  std::unique_ptr<Process> process_;
};

// Where HAProxy stands. As it is, it finds no replica by name, and there is no other proxy.
struct HaProxyPlace {
  std::string nameserver = "";  // ADDRESS:PORT
  std::string domain = ".invalid";
  int replica_port = 7070;  // of replicas that are found by name
  // Among its peers, whose sockets are in that folder; empty: it is alone.
  std::string name = "", peers_folder = "";
};

// The kind is the program's name: nginx or haproxy.
class Proxy {
 public:
  // Upstreams are paths of unix sockets, or 127.0.0.1:PORT; replicas after the last one are left to their
  // names.
  Proxy(std::string kind, std::vector<std::string> upstreams, HaProxyPlace place = {});
  ~Proxy();
  // Where the program is; empty where it is not installed.
  static std::string Program(const std::string& kind);

  bool checks_health() const { return kind_ == "haproxy"; }
  std::string address() const { return "unix:" + dir_.File("proxy.sock"); }
  // What an operator does to nginx, which asks nobody for health: takes upstream `out` out, -1 for none, and
  // reloads; then waits until the old workers take no calls.
  void Reload(int out);

  // HAProxy only. Its answer to a command of its management.
  std::string Manage(const std::string& command) const;
  // A new process takes the place of the old one, which has ended when this returns.
  void HandOver();
  // Waits until it remembers that the session is on that replica.
  void WaitUntilKnows(const std::string& session, int replica) const;
  // Without a word to anybody.
  void Kill();

 private:
  void WriteConfig(int out) const;
  std::string Nginx(int out) const;
  std::string HaProxy() const;
  std::vector<std::string> Command() const;
  std::string PeerSocket(const std::string& name) const;

  const std::string kind_;
  const std::vector<std::string> upstreams_;
  const HaProxyPlace place_;
  const TempDir dir_;
  std::unique_ptr<Process> process_;
};

// GetParam() is the kind of proxy.
class Replicas : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  // Started, and both reached through the proxy.
  void StartAll(absl::Duration drain_delay = absl::ZeroDuration());

  WeirClient Connect() const;
  // The replica that holds session `id`, -1 for none.
  int HolderOf(const std::string& id) const;
  void Create(const std::string& id) const;
  // One that the replica holds.
  std::string SessionOn(int replica) const;
  // Which replica a call without a session comes to, over a connection of its own; -1 when it fails.
  int Ask() const;
  // Waits until calls without a session come to `replica`, and only to it (`alone`).
  void WaitUntilAnswers(int replica, bool alone) const;
  // Both replicas have a session that tells which one it is.
  void Mark(int replica) const;
  // `weir` through the proxy.
  std::vector<std::string> Weir(std::vector<std::string> arguments, const std::string& address = "") const;

  TempDir dir_, model_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<Proxy> proxy_;
};

// Polls for what takes moments; false when it has not come after two minutes.
bool Eventually(const std::function<bool()>& condition);

// For the names of tests.
inline std::string KindName(const ::testing::TestParamInfo<std::string>& kind) { return kind.param; }

}  // namespace weir::testing
