#include "tests/e2e/replicas/replicas.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/support/tiny_model.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir::testing {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);  // for what takes moments

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

// The shipped files stay what is tested: each replacement has to meet its text.
void Replace(std::string* text, const std::string& from, const std::string& to) {
  EXPECT_GE(absl::StrReplaceAll({{from, to}}, text), 1) << from;
}

bool IsPath(const std::string& upstream) { return upstream[0] == '/'; }

std::vector<int> ChildrenOf(pid_t parent) {
  std::vector<int> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line == "PPid:\t" + std::to_string(parent)) children.push_back(pid);
  }
  return children;
}

// Whether this process of nginx takes no new connections or calls any more.
bool ShutsDown(int worker) {
  std::ifstream command("/proc/" + std::to_string(worker) + "/cmdline");
  std::stringstream text;
  text << command.rdbuf();
  return text.str().find("worker process") == std::string::npos ||
         text.str().find("shutting down") != std::string::npos;
}

std::string MarkOf(int replica) { return "mark-" + std::to_string(replica); }

}  // namespace

std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void Replica::Start(absl::Duration drain_delay) {
  process_ = std::make_unique<Process>(
      std::vector<std::string>{WEIR_SERVER_BINARY, "--listen", address(), "--model", "tiny=" + model_folder_,
                               "--slots", "64", "--threads", "1", "--drain-timeout", "5m", "--drain-delay",
                               std::to_string(absl::ToInt64Seconds(drain_delay)) + "s"});
  const std::string log = process_->ReadUntil("ready:");
  ASSERT_NE(log.find("ready:"), std::string::npos) << log;
}

WeirClient Replica::Connect() const {
  absl::StatusOr<WeirClient> client = WeirClient::Connect(address());
  WEIR_CHECK(client.ok());
  return *std::move(client);
}

std::string Proxy::Program(const std::string& kind) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/usr/local/sbin/"})
    if (access((folder + kind).c_str(), X_OK) == 0) return folder + kind;
  return "";
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

Proxy::Proxy(std::string kind, std::vector<std::string> upstreams, HaProxyPlace place)
    : kind_(std::move(kind)), upstreams_(std::move(upstreams)), place_(std::move(place)) {
  WriteConfig(-1);
  std::filesystem::create_directory(dir_.File("nginx"));
  process_ = std::make_unique<Process>(Command());
  // A channel that finds nobody would wait a second before it tries again.
  const absl::Time deadline = absl::Now() + kPatience;
  while (!std::filesystem::exists(dir_.File("proxy.sock")) && !process_->Ended() && absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_FALSE(process_->Ended()) << process_->ReadUntil("\n\n");
}

Proxy::~Proxy() {
  // The first process ends its workers; a signal that it cannot catch would leave them behind.
  process_->Signal(SIGTERM);
  process_->Wait();
}

std::vector<std::string> Proxy::Command() const {
  const std::string config = dir_.File("proxy.conf");
  // As root, nginx would give its workers a user who may not enter the test's folders.
  if (!checks_health())
    return {Program(kind_), "-c", config, "-g", getuid() == 0 ? "user root; daemon off;" : "daemon off;"};
  // As its image runs it: a first process that starts others at a reload.
  const std::string name = place_.name.empty() ? "alone" : place_.name;
  return {"/usr/bin/env",
          "WEIR_DOMAIN=" + place_.domain,
          "WEIR_PEERS=unix@" + PeerSocket(name),
          Program(kind_),
          "-W",
          "-db",
          "-L",
          name,
          "-f",
          config};
}

std::string Proxy::PeerSocket(const std::string& name) const {
  return (place_.peers_folder.empty() ? dir_.path() : place_.peers_folder) + "/" + name + ".sock";
}

void Proxy::WriteConfig(int out) const { dir_.Write("proxy.conf", checks_health() ? HaProxy() : Nginx(out)); }

std::string Proxy::Nginx(int out) const {
  std::string text = ReadFile(WEIR_SOURCE_DIR "/deploy/proxy/nginx.conf");
  Replace(&text, "/tmp/nginx/", dir_.File("nginx/"));
  Replace(&text, "listen 7070 http2;", "listen " + address() + " http2;");
  for (size_t i = 0; i < upstreams_.size(); ++i)
    Replace(&text, "server weir-" + std::to_string(i) + ":7070 ",
            std::string("server ") + (IsPath(upstreams_[i]) ? "unix:" : "") + upstreams_[i] +
                (static_cast<int>(i) == out ? " down " : " "));
  return text;
}

std::string Proxy::HaProxy() const {
  std::string text = ReadFile(WEIR_SOURCE_DIR "/deploy/proxy/haproxy.cfg");
  Replace(&text, "bind :7070 proto h2", "bind unix@" + dir_.File("proxy.sock") + " proto h2");
  for (size_t i = 0; i < upstreams_.size(); ++i)
    Replace(&text, "\"weir-" + std::to_string(i) + "${WEIR_DOMAIN}:7070\"",
            std::string(IsPath(upstreams_[i]) ? "unix@" : "") + upstreams_[i]);
  Replace(&text, "${WEIR_DOMAIN}:7070\"", "${WEIR_DOMAIN}:" + std::to_string(place_.replica_port) + "\"");
  Replace(&text, "init-addr libc,none", "init-addr none");  // libc would ask this machine's DNS
  if (!place_.nameserver.empty()) Replace(&text, "parse-resolv-conf", "nameserver test " + place_.nameserver);
  Replace(&text, "\nglobal\n", "\nglobal\n  stats socket unix@" + dir_.File("manage.sock") + "\n");
  for (const char* name : {"weir-proxy-0", "weir-proxy-1"})
    Replace(&text, name + std::string(":7170"), "unix@" + PeerSocket(name));
  return text;
}

void Proxy::Reload(int out) {
  const std::vector<int> workers = ChildrenOf(process_->pid());
  ASSERT_FALSE(workers.empty());
  WriteConfig(out);
  process_->Signal(SIGHUP);
  // Until then calls still go by the old configuration.
  EXPECT_TRUE(Eventually([&] { return std::all_of(workers.begin(), workers.end(), ShutsDown); }));
}

std::string Proxy::Manage(const std::string& command) const {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  dir_.File("manage.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(fd, (command + "\n").data(), command.size() + 1, MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
      answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

void Proxy::HandOver() {
  // For 5 s after its start a process waits for whom it could learn from, and teaches nobody: flags 1 and 2.
  ASSERT_TRUE(Eventually([this] {
    const std::string peers = Manage("show peers");
    const size_t at = peers.find(" flags=0x");
    return at != std::string::npos && (std::stoi(peers.substr(at + 7), nullptr, 16) & 3) == 3;
  })) << Manage("show peers");
  const std::vector<int> workers = ChildrenOf(process_->pid());
  ASSERT_EQ(workers.size(), 1u);
  process_->Signal(SIGUSR2);
  EXPECT_TRUE(Eventually([&] {
    const std::vector<int> now = ChildrenOf(process_->pid());
    return now.size() == 1 && now != workers;
  }));
}

void Proxy::WaitUntilKnows(const std::string& session, int replica) const {
  const auto known = [&] {
    std::istringstream lines(Manage("show table replicas"));
    for (std::string line; std::getline(lines, line);)
      if (line.find(" key=" + session + " ") != std::string::npos &&
          line.find("server_key=weir-" + std::to_string(replica)) != std::string::npos)
        return true;
    return false;
  };
  EXPECT_TRUE(Eventually(known)) << session << "\n" << Manage("show table replicas");
}

void Proxy::Kill() {
  for (const int worker : ChildrenOf(process_->pid())) kill(worker, SIGKILL);
  process_->Signal(SIGKILL);
  EXPECT_TRUE(Eventually([this] { return process_->Ended(); }));
}

void Replicas::SetUp() {
  if (Proxy::Program(GetParam()).empty())
    GTEST_SKIP() << GetParam() << " is not installed (deploy/packages.sh)";
  WriteTinyModel(model_.path(), {});
  for (int i = 0; i < 2; ++i)
    replicas_.push_back(std::make_unique<Replica>(model_.path(), dir_.File(std::to_string(i) + ".sock")));
}

void Replicas::StartAll(absl::Duration drain_delay) {
  for (const auto& replica : replicas_) ASSERT_NO_FATAL_FAILURE(replica->Start(drain_delay));
  for (int i = 0; i < 2; ++i) Mark(i);
  proxy_ = std::make_unique<Proxy>(GetParam(),
                                   std::vector<std::string>{replicas_[0]->socket(), replicas_[1]->socket()});
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(i, false));
}

WeirClient Replicas::Connect() const {
  absl::StatusOr<WeirClient> client = WeirClient::Connect(proxy_->address());
  WEIR_CHECK(client.ok());
  return *std::move(client);
}

int Replicas::HolderOf(const std::string& id) const {
  v1::GetSessionRequest request;
  request.set_name(SessionResource(id));
  int holder = -1;
  for (int i = 0; i < 2; ++i) {
    if (!replicas_[i]->Connect().GetSession(request).ok()) continue;
    EXPECT_EQ(holder, -1) << id << " is on both";
    holder = i;
  }
  return holder;
}

void Replicas::Create(const std::string& id) const {
  v1::CreateSessionRequest request;
  request.set_session_id(id);
  request.mutable_session()->set_model("models/tiny");
  const absl::StatusOr<v1::Session> session = Connect().CreateSession(request);
  EXPECT_TRUE(session.ok()) << session.status();
}

std::string Replicas::SessionOn(int replica) const {
  for (int i = 0; i < 60; ++i) {
    std::string id = "on-" + std::to_string(i);
    Create(id);
    if (HolderOf(id) == replica) return id;
  }
  ADD_FAILURE() << "no session came to replica " << replica;
  return "";
}

int Replicas::Ask() const {
  const auto stub = v1::Sessions::NewStub(OwnChannel(proxy_->address()));
  grpc::ClientContext context;
  v1::ListSessionsRequest request;
  request.set_page_size(1000);
  v1::ListSessionsResponse response;
  if (!stub->ListSessions(&context, request, &response).ok()) return -1;
  for (const v1::Session& session : response.sessions())
    for (int i = 0; i < 2; ++i)
      if (session.name() == SessionResource(MarkOf(i))) return i;
  return -1;
}

void Replicas::WaitUntilAnswers(int replica, bool alone) const {
  // Of two, each is asked half the time.
  const int enough = alone ? 20 : 1;
  const absl::Time deadline = absl::Now() + kPatience;
  for (int seen = 0; seen < enough;) {
    seen = Ask() == replica ? seen + 1 : 0;
    if (seen == 0) absl::SleepFor(absl::Milliseconds(20));
    ASSERT_LT(absl::Now(), deadline) << "replica " << replica;
  }
}

void Replicas::Mark(int replica) const {
  v1::CreateSessionRequest request;
  request.set_session_id(MarkOf(replica));
  request.mutable_session()->set_model("models/tiny");
  ASSERT_TRUE(replicas_[replica]->Connect().CreateSession(request).ok());
}

std::vector<std::string> Replicas::Weir(std::vector<std::string> arguments,
                                        const std::string& address) const {
  arguments.insert(arguments.begin(),
                   {WEIR_CLIENT_BINARY, "--server", address.empty() ? proxy_->address() : address});
  return arguments;
}

}  // namespace weir::testing
