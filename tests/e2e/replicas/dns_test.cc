// Replicas that HAProxy finds by their names in a real DNS, as in Kubernetes and compose: names that come, go
// and move.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "absl/time/clock.h"
#include "tests/e2e/replicas/replicas.h"
#include "tests/support/server_fixture.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

// All of 127.0.0.0/8 is loopback: four addresses of this process' own, with 22 bits of its id.
std::string OwnAddress(int i) {
  const in_addr address = {
      htonl((127u << 24) + ((static_cast<uint32_t>(getpid()) & 0x3fffff) << 2) + static_cast<uint32_t>(i))};
  return inet_ntoa(address);
}

// One that nobody listens at now; nobody else takes it, as the address is this process' own.
int FreePort(const std::string& address, int type) {
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = inet_addr(address.c_str());
  socklen_t size = sizeof(name);
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  WEIR_CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0);
  WEIR_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  close(fd);
  return ntohs(name.sin_port);
}

std::string DnsProgram() {
  for (const char* path : {"/usr/sbin/dnsmasq", "/usr/bin/dnsmasq", "/usr/local/sbin/dnsmasq"})
    if (access(path, X_OK) == 0) return path;
  return "";
}

// dnsmasq, which knows the names that it is given, and that there are no others.
class NameServer {
 public:
  explicit NameServer(std::string address) : ip_(std::move(address)), port_(FreePort(ip_, SOCK_DGRAM)) {}
  std::string address() const { return ip_ + ":" + std::to_string(port_); }

  void Start() {
    std::vector<std::string> command = {DnsProgram(),
                                        "--keep-in-foreground",
                                        "--conf-file=/dev/null",
                                        "--pid-file=",
                                        "--no-resolv",
                                        "--no-hosts",
                                        "--addn-hosts=" + hosts(),
                                        "--local=/weir.test/",
                                        "--bind-interfaces",
                                        "--cache-size=0",
                                        "--listen-address=" + ip_,
                                        "--port=" + std::to_string(port_),
                                        "--log-facility=-"};
    if (getuid() == 0) command.push_back("--user=root");  // another one may not enter the test's folder
    process_ = std::make_unique<Process>(command);
    ASSERT_THAT(process_->ReadUntil("read " + hosts()), HasSubstr("read " + hosts()));
  }
  void Stop() {
    process_->Signal(SIGKILL);
    process_->Wait();
  }
  // The replicas' addresses by number.
  void Set(const std::map<int, std::string>& replicas) {
    std::string lines;
    for (const auto& [i, ip] : replicas) lines += ip + " weir-" + std::to_string(i) + ".weir.test\n";
    dir_.Write("hosts", lines);
    if (process_ != nullptr) process_->Signal(SIGHUP);
  }

 private:
  std::string hosts() const { return dir_.File("hosts"); }

  const std::string ip_;
  const int port_;
  const TempDir dir_;
  std::unique_ptr<Process> process_;
};

class NamedReplicas : public Replicas {
 protected:
  void SetUp() override {
    if (Proxy::Program("haproxy").empty() || DnsProgram().empty())
      GTEST_SKIP() << "haproxy or dnsmasq is not installed (deploy/packages.sh)";
    WriteTinyModel(model_.path(), {});
    for (int i = 0; i < 2; ++i) replicas_.push_back(ReplicaAt(OwnAddress(i)));
  }
  std::unique_ptr<Replica> ReplicaAt(const std::string& ip) const {
    return std::make_unique<Replica>(model_.path(), ip + ":" + std::to_string(port_));
  }
  void StartReplica(int i) {
    ASSERT_NO_FATAL_FAILURE(replicas_[i]->Start(absl::ZeroDuration()));
    Mark(i);
  }
  void KillReplica(int i) {
    replicas_[i]->process().Signal(SIGKILL);
    replicas_[i]->process().Wait();
  }
  // Sessions that are made through the proxy are found through the proxy, and the replica gets some of them.
  void ExpectServes(int replica) {
    for (const int enough = next_id_ + 60; next_id_ < enough;) {
      const std::string id = "named-" + std::to_string(next_id_++);
      Create(id);
      v1::GetSessionRequest request;
      request.set_name(SessionResource(id));
      const absl::StatusOr<v1::Session> session = Connect().GetSession(request);
      ASSERT_TRUE(session.ok()) << session.status();
      if (HolderOf(id) == replica) return;
    }
    FAIL() << "no session came to replica " << replica;
  }

  const int port_ = FreePort(OwnAddress(0), SOCK_STREAM);
  NameServer dns_{OwnAddress(3)};
  int next_id_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Proxies, NamedReplicas, ::testing::Values("haproxy"), KindName);

TEST_P(NamedReplicas, AreFoundWhenTheyComeAndMoveAndKeptWhileTheDnsIsDown) {
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(StartReplica(i));
  dns_.Set({{0, OwnAddress(0)}});
  ASSERT_NO_FATAL_FAILURE(dns_.Start());
  proxy_ = std::make_unique<Proxy>("haproxy", std::vector<std::string>{},
                                   HaProxyPlace{dns_.address(), ".weir.test", port_, "", ""});
  // Names that are not there are passed over.
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, true));
  ExpectServes(0);

  // One more replica.
  dns_.Set({{0, OwnAddress(0)}, {1, OwnAddress(1)}});
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(1, false));
  ExpectServes(1);
  ExpectServes(0);

  // A pod is made anew: its name goes away and comes back with another address.
  dns_.Set({{1, OwnAddress(1)}});
  KillReplica(0);
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(1, true));
  replicas_[0] = ReplicaAt(OwnAddress(2));
  ASSERT_NO_FATAL_FAILURE(StartReplica(0));
  dns_.Set({{0, OwnAddress(2)}, {1, OwnAddress(1)}});
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));
  ExpectServes(0);
  ExpectServes(1);

  // Without a DNS: for longer than its retries take (4 s) all is as before, and health is still asked for.
  dns_.Stop();
  const absl::Time start = absl::Now();
  KillReplica(1);
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, true));
  ASSERT_NO_FATAL_FAILURE(StartReplica(1));
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(1, false));
  while (absl::Now() < start + absl::Seconds(6)) ASSERT_GE(Ask(), 0);
  ExpectServes(0);
  ExpectServes(1);

  // And when it is back it is asked again; a name changes its address without having been away.
  KillReplica(0);
  replicas_[0] = ReplicaAt(OwnAddress(0));
  ASSERT_NO_FATAL_FAILURE(StartReplica(0));
  dns_.Set({{0, OwnAddress(0)}, {1, OwnAddress(1)}});
  ASSERT_NO_FATAL_FAILURE(dns_.Start());
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));
  ExpectServes(0);
}

}  // namespace
}  // namespace weir::testing
