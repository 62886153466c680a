// The log and the metrics of a server as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "fmt/format.h"
#include "grpcpp/create_channel.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/process.h"
#include "tests/support/http_client.h"
#include "tests/support/metrics_text.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

class LoggingServer : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> options) {
    WriteTinyModel(model_.path(), {});
    std::vector<std::string> command = {WEIR_SERVER_BINARY,
                                        "--listen",
                                        "unix:" + model_.File("grpc"),
                                        "--metrics-listen",
                                        "unix:" + model_.File("http"),
                                        "--model",
                                        "tiny=" + model_.path(),
                                        "--threads",
                                        "1",
                                        "--slots",
                                        "4"};
    command.insert(command.end(), options.begin(), options.end());
    server_ = std::make_unique<Process>(command);
    server_->ReadUntil("ready: 1 models");
    stub_ = v1::Generation::NewStub(
        grpc::CreateChannel("unix:" + model_.File("grpc"), grpc::InsecureChannelCredentials()));
  }
  grpc::Status Say(const std::string& text, const std::string& request_id = "") {
    v1::GenerateRequest request;
    request.mutable_prompt()->set_text(text);
    request.mutable_stop()->set_max_tokens(2);
    request.mutable_stop()->set_ignore_eos(true);
    grpc::ClientContext context;
    if (!request_id.empty()) context.AddMetadata("x-request-id", request_id);
    return Generate(*stub_, request, &context).status;
  }
  HttpAnswer Get(const std::string& path) const {
    return AnswerTo(HttpConnection(model_.File("http")), "GET " + path + " HTTP/1.1\r\n\r\n");
  }

  TempDir model_;
  std::unique_ptr<Process> server_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

TEST_F(LoggingServer, EveryLineIsJsonAndNoneHasThePrompt) {
  Start({"--log-format", "json", "--log-level", "debug"});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Say("abracadabra", fmt::format("id-{}", i)).ok());
  EXPECT_FALSE(Say("").ok());
  grpc::ClientContext reading;
  v1::ServerInfo info;
  EXPECT_TRUE(v1::Server::NewStub(
                  grpc::CreateChannel("unix:" + model_.File("grpc"), grpc::InsecureChannelCredentials()))
                  ->GetServerInfo(&reading, v1::GetServerInfoRequest(), &info)
                  .ok());
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_EQ(server_->output().find("abracadabra"), std::string::npos);
  std::istringstream lines(server_->output());
  std::vector<nlohmann::json> calls;
  std::set<std::string> messages;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(object.is_object()) << line;
    EXPECT_THAT(object.at("time").get<std::string>(), ::testing::EndsWith("Z"));
    messages.insert(object.at("message").get<std::string>().substr(0, 5));
    if (object.at("message") == "call") calls.push_back(object);
  }
  EXPECT_EQ(messages.count("ready"), 1u) << server_->output();
  ASSERT_EQ(calls.size(), 7u) << server_->output();
  std::set<std::string> ids;
  for (const auto& call : calls) ids.insert(call.at("request_id"));
  EXPECT_EQ(ids.size(), 7u);
  // A line is written when the server is done with a call, which may be after the client's next one: any
  // order.
  const auto with = [&calls](const std::string& key, const std::string& value) {
    for (const auto& call : calls)
      if (call.contains(key) && call[key] == value) return call;
    ADD_FAILURE() << "no line whose " << key << " is " << value;
    return nlohmann::json::object();
  };
  const nlohmann::json first = with("request_id", "id-0");
  EXPECT_EQ(first.value("model", ""), "tiny");
  EXPECT_EQ(first.value("generated_tokens", -1), 2);
  EXPECT_EQ(first.value("finish_reason", ""), "max_tokens");
  EXPECT_EQ(first.value("code", ""), "OK");
  EXPECT_EQ(first.value("level", ""), "info");
  EXPECT_EQ(with("code", "INVALID_ARGUMENT").value("error", ""), "INVALID_FIELD");
  // What changes nothing is of a lower level.
  EXPECT_EQ(with("method", "GetServerInfo").value("level", ""), "debug");
}

TEST_F(LoggingServer, PromptsAreLoggedWhereTheyAreAskedFor) {
  Start({"--log-prompts"});
  EXPECT_TRUE(Say("abracadabra").ok());
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->output(), HasSubstr("prompt=\"abracadabra\""));
}

// Nobody reads the server's standard error, which is a pipe: it fills, and nothing else comes of that.
TEST_F(LoggingServer, ALogThatNobodyReadsStopsNothing) {
  Start({});
  constexpr int kCalls = 300;  // lines of more than 300 bytes: more than a pipe holds
  for (int i = 0; i < kCalls; ++i) ASSERT_TRUE(Say("a", std::string(128, 'x')).ok());
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Scrape(Get("/metrics").body)("weir_requests_total{model=\"tiny\",finish_reason=\"max_tokens\"}"),
            kCalls);
  server_->Signal(SIGTERM);
  // Looks at the process without reading what it says.
  EXPECT_TRUE(WaitFor([&] { return server_->Ended(); }, absl::Seconds(60)));
  EXPECT_EQ(server_->Wait(), 0);
}

}  // namespace
}  // namespace weir::testing
