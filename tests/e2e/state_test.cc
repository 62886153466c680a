// Snapshots, rollback, export and import of both kinds of state: real models, real sockets, two processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "nlohmann/json.hpp"
#include "tests/e2e/process.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

std::vector<int32_t> Prompt(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(1 + i * 7 % 90);
  return ids;
}

class StateOf : public ::testing::TestWithParam<std::string> {
 protected:
  StateOf() : device_(CreateCpuDevice(1)) {
    TinyModelOptions options;
    options.mixer = GetParam();
    std::vector<ServedModel> models;
    models.push_back(MakeServedModel(LoadTinyModel(options, *device_), {.slots = 8, .kv_blocks = 400}));
    fixture_ = std::make_unique<ServerFixture>(std::move(models));
  }
  template <class Request, class Response>
  void Call(grpc::Status (v1::Sessions::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
            const Request& request, Response* response) {
    grpc::ClientContext context;
    const grpc::Status status = (fixture_->sessions().*method)(&context, request, response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  v1::Session Create(const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    v1::Session session;
    Call(&v1::Sessions::Stub::CreateSession, request, &session);
    return session;
  }
  v1::Session Get(const std::string& id) {
    v1::GetSessionRequest request;
    request.set_name("sessions/" + id);
    v1::Session session;
    Call(&v1::Sessions::Stub::GetSession, request, &session);
    return session;
  }
  Answer Turn(const std::string& id, const std::vector<int32_t>& prompt, int64_t max_tokens, bool sampled) {
    v1::GenerateRequest request = GreedyRequest(prompt, max_tokens);
    request.set_session("sessions/" + id);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_output()->set_logprobs(true);
    if (sampled) {
      request.mutable_sampling()->set_temperature(1.2f);
      request.mutable_sampling()->set_seed(42);
      request.mutable_sampling()->set_repetition_penalty(1.2f);
    }
    Answer answer = Generate(fixture_->generation(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.what_is_wrong, "");
    return answer;
  }
  std::string Export(const std::string& id) {
    grpc::ClientContext context;
    v1::ExportSessionRequest request;
    request.set_name("sessions/" + id);
    auto reader = fixture_->sessions().ExportSession(&context, request);
    std::string bytes;
    v1::ExportSessionResponse message;
    while (reader->Read(&message)) bytes += message.data();
    EXPECT_TRUE(reader->Finish().ok());
    return bytes;
  }
  static void ExpectSame(const Answer& a, const Answer& b) {
    EXPECT_EQ(a.token_ids, b.token_ids);
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (size_t i = 0; i < a.logprobs.size(); ++i)
      ASSERT_EQ(a.logprobs[i].logprob(), b.logprobs[i].logprob()) << i;  // the same bits
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<ServerFixture> fixture_;
};

TEST_P(StateOf, ARollbackRestoresEveryBitWhateverSharesTheBatch) {
  Create("s");
  Turn("s", Prompt(150), 30, true);
  v1::CreateSnapshotRequest request;
  request.set_parent("sessions/s");
  v1::Snapshot snapshot;
  Call(&v1::Sessions::Stub::CreateSnapshot, request, &snapshot);
  const std::string before = Export("s");
  const Answer first = Turn("s", {9}, 200, true);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) Generate(fixture_->generation(), GreedyRequest(Prompt(70), 15));
  });
  for (int i = 0; i < 3; ++i) {
    v1::RollbackSessionRequest rollback;
    rollback.set_name("sessions/s");
    rollback.set_snapshot(snapshot.name());
    v1::Session session;
    Call(&v1::Sessions::Stub::RollbackSession, rollback, &session);
    EXPECT_EQ(session.position(), 180);
    EXPECT_TRUE(Export("s") == before);
    ExpectSame(Turn("s", {9}, 200, true), first);
  }
  stop.store(true);
  other.join();
}

TEST_P(StateOf, SES_12_SnapshotForkAndExportLeaveTheSessionsBytes) {
  Create("s");
  Turn("s", Prompt(100), 30, false);
  const std::string before = Export("s");
  v1::CreateSnapshotRequest request;
  request.set_parent("sessions/s");
  v1::Snapshot snapshot;
  Call(&v1::Sessions::Stub::CreateSnapshot, request, &snapshot);
  EXPECT_TRUE(Export("s") == before);
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/s");
  fork.set_session_id("f");
  v1::Session session;
  Call(&v1::Sessions::Stub::ForkSession, fork, &session);
  EXPECT_TRUE(Export("f") == before);
  Turn("f", {5}, 100, false);
  EXPECT_TRUE(Export("s") == before);
  v1::RollbackSessionRequest rollback;
  rollback.set_name("sessions/s");
  rollback.set_snapshot(snapshot.name());
  Call(&v1::Sessions::Stub::RollbackSession, rollback, &session);
  EXPECT_TRUE(Export("s") == before);
}

TEST_P(StateOf, SES_17_BytesFollowThePositionOnlyWhereTheStateGrows) {
  Create("s");
  Turn("s", Prompt(10), 1, false);
  const v1::Session early = Get("s");
  Turn("s", Prompt(10'000), 1, false);
  const v1::Session late = Get("s");
  if (GetParam() == "softmax") {
    EXPECT_GT(late.state_bytes(), 100 * early.state_bytes());
    EXPECT_GT(late.export_bytes(), 10 * early.export_bytes());
  } else {
    EXPECT_EQ(late.state_bytes(), early.state_bytes());
    EXPECT_EQ(late.export_bytes(), early.export_bytes());
  }
  EXPECT_EQ(late.export_bytes(), static_cast<int64_t>(Export("s").size()));
}

INSTANTIATE_TEST_SUITE_P(State, StateOf, ::testing::Values("linear_attention", "softmax"),
                         [](const auto& test) { return test.param == "softmax" ? "Paged" : "Fixed"; });

// A server as its operator starts it, over one tiny model of each kind.
class TwoServers : public ::testing::Test {
 protected:
  TwoServers() {
    TinyModelOptions options;
    WriteTinyModel(linear_.path(), options);
    options.mixer = "softmax";
    WriteTinyModel(softmax_.path(), options);
  }
  std::unique_ptr<Process> Start(std::string* address) {
    auto server = std::make_unique<Process>(std::vector<std::string>{
        WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0", "--model", "linear=" + linear_.path(), "--model",
        "softmax=" + softmax_.path(), "--slots", "4", "--kv-memory", "16MiB", "--threads", "1"});
    const std::string log = server->ReadUntil("ready");
    const size_t at = log.find("127.0.0.1:");
    EXPECT_NE(at, std::string::npos) << log;
    *address = log.substr(at, log.find_first_not_of("0123456789", at + 10) - at);
    return server;
  }
  std::string Run(const std::string& address, std::vector<std::string> arguments, int code = 0) {
    arguments.insert(arguments.begin(), {WEIR_CLIENT_BINARY, "--server", address});
    Process process(arguments);
    EXPECT_EQ(process.Wait(), code) << process.output();
    return process.output();
  }
  static std::vector<std::string> Sampled(const std::string& session, const std::string& ids) {
    return {"generate", "-s",     session, "--token-ids", ids,   "-n",
            "20",       "--seed", "7",     "-t",          "1.3", "--ignore-eos"};
  }
  int64_t Prefilled(const std::string& address) {
    const auto info = nlohmann::json::parse(Run(address, {"--json", "info"}), nullptr, false);
    int64_t sum = 0;
    for (const auto& use : info["server"]["models"]) sum += use["prefilled_tokens"].get<int64_t>();
    return sum;
  }

  TempDir linear_, softmax_, folder_;
};

TEST_F(TwoServers, SES_06_AnExportGoesOnInAnotherProcessWithoutComputingAnythingAgain) {
  std::string ids = "1";
  for (int i = 1; i < 1000; ++i) ids += "," + std::to_string(1 + i * 7 % 90);
  std::string a, b;
  auto first = Start(&a);
  std::map<std::string, std::string> sampled, greedy;
  for (const std::string model : {"linear", "softmax"}) {
    const std::string id = "talk-" + model;
    Run(a, {"sessions", "create", "-m", model, "--id", id});
    Run(a, {"generate", "-s", id, "--token-ids", ids, "-n", "1", "-t", "0", "--ignore-eos"});
    EXPECT_THAT(Run(a, {"sessions", "export", id, folder_.path() + "/" + id}), HasSubstr("position 1001"));
    sampled[model] = Run(a, Sampled(id, "9"));
    greedy[model] = Run(a, {"generate", "-s", id, "-n", "20", "-t", "0", "--ignore-eos"});
  }
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(), 0);

  auto second = Start(&b);
  Run(b, {"sessions", "create", "-m", "linear", "--id", "other"});  // so that the slot is another one
  for (const std::string model : {"linear", "softmax"}) {
    const std::string id = "talk-" + model, file = folder_.path() + "/" + id;
    EXPECT_EQ(Run(b, {"sessions", "import", file, "--id", id}), "sessions/" + id + "\n");
    Run(b, {"sessions", "export", id, file + ".again"});
    EXPECT_TRUE(ReadFile(file) == ReadFile(file + ".again"));
    const int64_t before = Prefilled(b);
    EXPECT_EQ(Run(b, Sampled(id, "9")), sampled[model]);
    EXPECT_EQ(Prefilled(b), before + 1);  // the pending token; the new one takes the decode path
    EXPECT_EQ(Run(b, {"generate", "-s", id, "-n", "20", "-t", "0", "--ignore-eos"}), greedy[model]);
  }
  // Not into the other model, not after a change, and what was there is still there.
  EXPECT_THAT(Run(b, {"sessions", "import", folder_.path() + "/talk-linear", "-m", "softmax"}, 1),
              HasSubstr("SNAPSHOT_MISMATCH"));
  std::string bytes = ReadFile(folder_.path() + "/talk-softmax");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(folder_.path() + "/bad", std::ios::binary) << bytes;
  EXPECT_THAT(Run(b, {"sessions", "import", folder_.path() + "/bad"}, 1), HasSubstr("STATE_CORRUPT"));
  EXPECT_THAT(Run(b, {"sessions", "import", softmax_.path() + "/config.json"}, 1), HasSubstr("WEIRSNAP"));
  EXPECT_THAT(Run(b, {"sessions", "list"}), HasSubstr("talk-softmax"));
  EXPECT_THAT(Run(b, {"--json", "info"}), HasSubstr("\"snapshot_memory_used_bytes\":0"));
}

}  // namespace
}  // namespace weir::testing
