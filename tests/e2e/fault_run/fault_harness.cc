#include "tests/e2e/fault_run/fault_harness.h"

#include <dirent.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "fmt/format.h"
#include "grpcpp/create_channel.h"
#include "runtime/base/process.h"
#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

// "VmHWM:  1234 kB" of /proc/PID/status, in bytes.
int64_t StatusBytes(pid_t pid, const std::string& field) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);)
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) << 10;
  return 0;
}

std::string WhatIsTaken(const v1::ServerInfo& info) {
  std::string taken;
  for (const v1::ModelUse& use : info.models())
    if (use.slots_free() != use.slots_total() || use.kv_blocks_free() != use.kv_blocks_total() ||
        use.sessions() != 0 || use.requests_running() != 0 || use.requests_waiting() != 0)
      taken +=
          fmt::format("{}: {} of {} slots free, {} of {} blocks, {} sessions, {} turns run, {} wait; ",
                      use.model().name(), use.slots_free(), use.slots_total(), use.kv_blocks_free(),
                      use.kv_blocks_total(), use.sessions(), use.requests_running(), use.requests_waiting());
  if (info.snapshot_memory_used_bytes() != 0)
    taken += fmt::format("{} bytes of snapshots", info.snapshot_memory_used_bytes());
  return taken;
}

}  // namespace

FaultRun::FaultRun() { RaiseDescriptorLimit(); }

FaultRun::~FaultRun() = default;

std::vector<std::string> FaultRun::Command(const std::vector<std::string>& options,
                                           const std::vector<std::string>& environment) const {
  // To a file, for nobody reads while a fault goes on; and the server does not outlive the test.
  std::vector<std::string> command = {
      "/bin/sh", "-c", "exec >>" + dir_.File("log") + " 2>&1; exec setpriv --pdeathsig KILL \"$@\"", "sh",
      "/usr/bin/env"};
  command.insert(command.end(), environment.begin(), environment.end());
  command.insert(command.end(), {WEIR_SERVER_BINARY, "--listen", listen_});
  for (const std::string& twin : twins_)
    command.insert(command.end(), {"--model", twin + "=" + models_ + "/" + twin});
  const std::pair<const char*, std::string> usual[] = {{"--threads", "2"},
                                                       {"--slots", std::to_string(kSlots)},
                                                       {"--kv-memory", "256MiB"},
                                                       {"--snapshot-memory", "16MiB"},
                                                       {"--max-waiting", "4096"}};
  for (const auto& [name, value] : usual)
    if (std::find(options.begin(), options.end(), name) == options.end())
      command.insert(command.end(), {name, value});
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

void FaultRun::StartServer(const std::vector<std::string>& options,
                           const std::vector<std::string>& environment) {
  // The connections of a server before go first: gRPC would try them again.
  witnesses_.clear();
  control_.reset();
  std::ofstream(dir_.File("log"), std::ios::trunc).close();
  server_ = std::make_unique<Process>(Command(options, environment));
  ASSERT_TRUE(
      WaitFor([&] { return log().find("ready:") != std::string::npos || server_->Ended(); }, kPatience))
      << log();
  const std::string said = "listens on ";
  const size_t at = log().find(said);
  ASSERT_NE(at, std::string::npos) << log();
  address_ = log().substr(at + said.size(), log().find('\n', at) - at - said.size());

  control_ = std::make_unique<WeirClient>(Connect());
  for (const std::string& twin : twins_) {
    witnesses_.push_back(std::make_unique<Witness>(Connect(), twin));
    const absl::Status talked = witnesses_.back()->TalkAlone();
    ASSERT_TRUE(talked.ok()) << talked;
  }
  // The server opens some descriptors when it has first something to do.
  StartWitnesses();
  StopWitnesses();
  ExpectAllIsFree();
  descriptors_ = Descriptors();
}

void FaultRun::StopServer() {
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0) << log();
}

void FaultRun::StartWitnesses(bool may_wait) {
  for (const auto& witness : witnesses_) witness->Start(may_wait);
}

void FaultRun::StopWitnesses() {
  for (const auto& witness : witnesses_) {
    const absl::Status status = witness->Stop();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_GE(witness->talks(), 1);
  }
}

std::vector<Testimony> FaultRun::Testimonies() const {
  std::vector<Testimony> all;
  for (const auto& witness : witnesses_) all.push_back(witness->alone());
  return all;
}

void FaultRun::AwaitTalks(int talks) const {
  for (const auto& witness : witnesses_) {
    const int until = witness->talks() + talks;
    EXPECT_TRUE(WaitFor([&] { return witness->talks() >= until || !witness->talking(); }, kPatience));
  }
}

void FaultRun::ExpectAllIsFree() {
  std::string taken;
  EXPECT_TRUE(WaitFor(
      [&] {
        taken = WhatIsTaken(Info());
        return taken.empty();
      },
      kPatience))
      << taken;
}

void FaultRun::Endure(const std::function<void()>& fault, const EndureOptions& options) {
  std::vector<int64_t> levels;
  for (int i = 0; i < kMostRounds; ++i) {
    StartWitnesses(options.witnesses_may_wait);
    fault();
    if (HasFatalFailure()) return;
    StopWitnesses();
    ExpectAllIsFree();
    EXPECT_TRUE(WaitFor([&] { return Descriptors() <= descriptors_; }, kPatience))
        << Descriptors() << " descriptors, and " << descriptors_ << " before";
    ExpectServed();
    if (HasFailure()) return;
    levels.push_back(ResidentBytes());
    fmt::print("memory after {} times: {:.1f} MiB\n", i + 1, static_cast<double>(levels.back()) / (1 << 20));
    if (i > 0 && (kSanitized || levels[i] - levels[i - 1] <= kAllowance)) return;
  }
  ADD_FAILURE() << "memory grows each time: " << ::testing::PrintToString(levels);
}

WeirClient FaultRun::Connect() const {
  ConnectOptions options;
  options.timeout = kPatience;
  options.api_key = api_key_;
  absl::StatusOr<WeirClient> client = WeirClient::Connect(address_, options);
  WEIR_CHECK(client.ok());
  return *std::move(client);
}

v1::ServerInfo FaultRun::Info() const {
  absl::StatusOr<v1::ServerInfo> info = control_->GetServerInfo();
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? *std::move(info) : v1::ServerInfo();
}

std::shared_ptr<grpc::Channel> FaultRun::NewChannel(grpc::ChannelArguments arguments) const {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
}

v1::GenerateRequest FaultRun::Request(const std::string& model, int64_t tokens) {
  v1::GenerateRequest request;
  request.set_model(ModelResource(model));
  request.mutable_prompt()->set_text("Once upon a time");
  request.mutable_stop()->set_max_tokens(tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_seed(1);
  return request;
}

void FaultRun::ExpectServed() const {
  const absl::StatusOr<Health> health = Connect().CheckHealth();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, Health::kServing);
}

int FaultRun::port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }

std::string FaultRun::log() const {
  std::ifstream file(dir_.File("log"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t FaultRun::Descriptors() const {
  int64_t count = 0;
  if (DIR* folder = opendir(fmt::format("/proc/{}/fd", server_->pid()).c_str())) {
    while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
    closedir(folder);
  }
  return count;
}

int64_t FaultRun::ResidentBytes() const { return StatusBytes(server_->pid(), "RssAnon"); }

int64_t FaultRun::PeakBytes() const { return StatusBytes(server_->pid(), "VmHWM"); }

}  // namespace weir::testing
