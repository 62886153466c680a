// What happens to the process from outside: a full disk, a model folder that is not what it was, signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "fmt/format.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/e2e/fault_run/fault_harness.h"
#include "tests/e2e/fault_run/raw_connection.h"
#include "tests/support/server_fixture.h"
#include "weir/v1/generation.grpc.pb.h"

namespace weir::testing {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

class DiskFaults : public FaultRun {
 protected:
  // Output and exit status of a line for the shell, in which $WEIR is the command with its server.
  std::pair<std::string, int> Shell(const std::string& line,
                                    const std::vector<std::string>& prefix = {}) const {
    std::vector<std::string> command = prefix;
    command.insert(command.end(),
                   {"/bin/sh", "-c", "WEIR='" WEIR_CLIENT_BINARY " --server " + address_ + "'; " + line});
    Process process(command);
    const int code = process.Wait();
    return {process.output(), code};
  }
  std::string Said(const std::string& model) const {
    std::string text;
    const auto result =
        Connect().Generate(Request(model, 40), [&](const v1::Delta& delta) { text += delta.text(); });
    EXPECT_TRUE(result.ok()) << result.status();
    return text;
  }
};

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST_F(DiskFaults, AFullDiskEndsAnExportAndNothingElse) {
  StartServer();
  const std::string small = dir_.File("small"), whole = dir_.File("whole"), again = dir_.File("again");
  fs::create_directory(small);
  const std::vector<std::string> alone = {"/usr/bin/unshare", "--user", "--map-root-user", "--mount"};
  const std::string mount = "mount -t tmpfs -o size=32k none " + small;
  const bool can_mount = Shell(mount, alone).second == 0;
  Endure([&] {
    const auto [made, made_code] = Shell(
        "$WEIR sessions create -m tales-linear --id s && $WEIR generate -s s -n 20 --ignore-eos hello && "
        "$WEIR sessions export s " +
        whole);
    ASSERT_EQ(made_code, 0) << made;
    // A file system of 32 KiB.
    if (can_mount) {
      const auto [text, code] = Shell(mount + " && { $WEIR sessions export s " + small +
                                          "/file; code=$?; "
                                          "echo left: `ls -A " +
                                          small + "`.; exit $code; }",
                                      alone);
      EXPECT_EQ(code, 1) << text;
      EXPECT_THAT(text, HasSubstr("No space left on device"));
      EXPECT_THAT(text, HasSubstr("left: ."));
    }
    // A limit of 16 blocks for each file.
    const auto [limited, limited_code] = Shell("ulimit -f 16; $WEIR sessions export s " + small + "/file");
    EXPECT_EQ(limited_code, 1) << limited;
    EXPECT_THAT(limited, HasSubstr("File too large"));
    EXPECT_TRUE(fs::is_empty(small));
    // A full device, as the file and as standard output.
    for (const char* target : {"/dev/full", "- >/dev/full"}) {
      const auto [text, code] = Shell(std::string("$WEIR sessions export s ") + target);
      EXPECT_EQ(code, 1) << text;
      EXPECT_THAT(text, HasSubstr("No space left on device"));
    }
    // The session is what it was.
    ASSERT_EQ(Shell("$WEIR sessions export s " + again + " && $WEIR sessions delete s").second, 0);
    EXPECT_TRUE(Bytes(again) == Bytes(whole));
  });
  if (!can_mount) fmt::print("no file system can be mounted here: the test went without a full one\n");
  StopServer();
}

// Where the log goes is full.
TEST_F(DiskFaults, ALogThatCannotBeWrittenStopsNothing) {
  const std::string socket = "unix:" + dir_.File("socket");
  Process server({"/bin/sh", "-c",
                  "exec setpriv --pdeathsig KILL " WEIR_SERVER_BINARY " --listen " + socket +
                      " --slots 4 --threads 1 --model " WEIR_SOURCE_DIR
                      "/model/zoo/tales-linear >/dev/full 2>&1"});
  address_ = socket;
  EXPECT_TRUE(WaitFor([&] { return Shell("$WEIR info -q").second == 0; }, kPatience));
  EXPECT_NE(Said("tales-linear"), "");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(DiskFaults, AModelFolderThatIsReplaced) {
  const fs::path models = dir_.File("models");
  const auto copy = [&] {
    fs::remove_all(models);
    fs::copy(WEIR_SOURCE_DIR "/model/zoo", models, fs::copy_options::recursive);
  };
  copy();
  ServeFrom(models.string());
  StartServer();
  std::map<std::string, std::string> said;
  for (const char* twin : kTwins) said[twin] = Said(twin);
  const auto expect_the_same = [&](const char* after) {
    for (const char* twin : kTwins) EXPECT_EQ(Said(twin), said[twin]) << after;
  };
  Endure([&] {
    copy();
    for (const auto& entry : fs::recursive_directory_iterator(models)) {
      if (!entry.is_regular_file()) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file << std::string(fs::file_size(entry.path()), '?');
    }
    expect_the_same("every byte was overwritten in place");
    for (const auto& entry : fs::recursive_directory_iterator(models))
      if (entry.is_regular_file()) fs::resize_file(entry.path(), 0);
    expect_the_same("every file was cut to nothing");
    copy();
    fs::rename(models / kTwins[0], models / "aside");
    fs::rename(models / kTwins[1], models / kTwins[0]);
    fs::rename(models / "aside", models / kTwins[1]);
    expect_the_same("the twins changed places");
    fs::remove_all(models);
    expect_the_same("all was removed");
  });
  StopServer();
}

// A turn of a client that reads, from another thread.
class RunningTurn {
 public:
  RunningTurn(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerateRequest& request)
      : stub_(v1::Generation::NewStub(channel)), thread_([this, request] {
          answer_ = Generate(*stub_, request, &context_);
          end_ = std::chrono::steady_clock::now();
        }) {}
  const Answer& End() {
    if (thread_.joinable()) thread_.join();
    return answer_;
  }
  std::chrono::steady_clock::time_point end() const { return end_; }
  ~RunningTurn() { End(); }

 private:
  const std::unique_ptr<v1::Generation::Stub> stub_;
  grpc::ClientContext context_;
  Answer answer_;
  std::chrono::steady_clock::time_point end_;
  std::thread thread_;  // last: uses the others
};

class SignalFaults : public FaultRun {
 protected:
  // Eight turns, all running.
  void StartTurns(int64_t tokens) {
    turns_.clear();
    for (int i = 0; i < 8; ++i) turns_.emplace_back(NewChannel(), Request(kTwins[i % 2], tokens));
    ASSERT_TRUE(WaitFor(
        [&] {
          int64_t running = 0;
          const v1::ServerInfo info = Info();
          for (const v1::ModelUse& use : info.models()) running += use.requests_running();
          return running == 8;
        },
        kPatience));
  }
  std::deque<RunningTurn> turns_;
};

TEST_F(SignalFaults, SigtermLetsWhatRunsComeToItsEnd) {
  StartServer({"--drain-timeout", "10m"});
  constexpr int64_t kTokens = 500;
  std::map<std::string, std::vector<int32_t>> alone;
  for (const char* twin : kTwins)
    alone[twin] = Generate(*v1::Generation::NewStub(NewChannel()), Request(twin, kTokens)).token_ids;
  // These do not hold it up: a stream without a turn, and connections that say nothing.
  const auto health = grpc::health::v1::Health::NewStub(NewChannel());
  grpc::ClientContext watching;
  const auto watch = health->Watch(&watching, grpc::health::v1::HealthCheckRequest());
  grpc::health::v1::HealthCheckResponse now;
  ASSERT_TRUE(watch->Read(&now));
  const RawConnection silent(port()), half(port());

  StartTurns(kTokens);
  const auto late = v1::Generation::NewStub(NewChannel());
  server_->Signal(SIGTERM);
  ASSERT_TRUE(watch->Read(&now));
  EXPECT_EQ(now.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(WaitFor(
      [&] {
        return Generate(*late, Request(kTwins[0], 1)).status.error_code() == grpc::StatusCode::UNAVAILABLE;
      },
      kPatience));
  for (size_t i = 0; i < turns_.size(); ++i) {
    const Answer& answer = turns_[i].End();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.token_ids, alone[kTwins[i % 2]]);
  }
  EXPECT_EQ(server_->Wait(), 0) << log();
  while (watch->Read(&now)) {
  }
  watch->Finish();
}

TEST_F(SignalFaults, AfterSigkillClientsKnowAtOnceAndTheAddressIsFree) {
  for (const std::string& listen : {std::string("127.0.0.1:0"), "unix:" + dir_.File("socket")}) {
    listen_ = listen;
    StartServer();
    const std::vector<Testimony> before = Testimonies();
    StartTurns(5000);
    const auto killed = std::chrono::steady_clock::now();
    server_->Signal(SIGKILL);
    EXPECT_EQ(server_->Wait(), 1000 + SIGKILL);
    for (RunningTurn& turn : turns_) {
      EXPECT_EQ(turn.End().status.error_code(), grpc::StatusCode::UNAVAILABLE);
      EXPECT_LT(turn.end() - killed, std::chrono::seconds(20));
    }
    turns_.clear();
    listen_ = address_;
    StartServer();
    EXPECT_EQ(Testimonies(), before);
    StopServer();
  }
}

}  // namespace
}  // namespace weir::testing
