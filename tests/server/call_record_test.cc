// What the log says of turns, and that nothing of their text is in it unless it was asked for.
#include "server/frontend/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "runtime/base/mutex.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::ServerFixture;
using testing::WaitFor;

// A server and what it logged.
class LoggedCalls : public ::testing::Test {
 protected:
  void Start(bool prompts = false, const RunnerLimits& limits = {}) {
    testing::FixtureOptions options;
    options.server.frontend.calls.prompts = prompts;
    options.server.frontend.calls.sink = [this](const FinishedCall& call) {
      MutexLock lock(&mu_);
      calls_.push_back(call);
    };
    std::vector<testing::ServedModel> models;
    models.push_back(testing::MakeServedFake("fake", {.eos_id = testing::kEosId}, limits));
    fixture_ = std::make_unique<ServerFixture>(std::move(models), options);
  }
  // The line of the n-th call, which may come after its answer.
  FinishedCall Call(size_t n) {
    EXPECT_TRUE(WaitFor([&] {
      MutexLock lock(&mu_);
      return calls_.size() > n;
    }));
    MutexLock lock(&mu_);
    return calls_.at(n);
  }

  Mutex mu_;
  std::vector<FinishedCall> calls_;
  std::unique_ptr<ServerFixture> fixture_;  // last: its threads log
};

TEST_F(LoggedCalls, ATurnIsOneLine) {
  Start();
  v1::CreateSessionRequest create;
  create.set_session_id("fireside");
  v1::Session session;
  grpc::ClientContext creating;
  ASSERT_TRUE(fixture_->sessions().CreateSession(&creating, create, &session).ok());
  v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 5);
  request.set_session("sessions/fireside");
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine-1");
  context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  EXPECT_TRUE(Generate(fixture_->generation(), request, &context).status.ok());
  const auto& metadata = context.GetServerInitialMetadata();
  ASSERT_EQ(metadata.count("x-request-id"), 1u);
  EXPECT_EQ(metadata.find("x-request-id")->second, "mine-1");
  const FinishedCall call = Call(0);
  EXPECT_EQ(call.method, "Generate");
  EXPECT_EQ(call.request_id, "mine-1");
  EXPECT_EQ(call.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(call.model, "fake");
  EXPECT_EQ(call.session, "fireside");
  EXPECT_EQ(call.prompt_tokens, 3);
  EXPECT_EQ(call.generated_tokens, 5);
  EXPECT_EQ(call.outcome, "max_tokens");
  EXPECT_FALSE(call.failed);
  ASSERT_TRUE(call.first_token.has_value());
  EXPECT_GT(*call.first_token, absl::ZeroDuration());
  EXPECT_GE(call.duration, *call.first_token);

  grpc::ClientContext appending, repeated, scoring;
  v1::AppendSessionRequest append;
  append.set_name("sessions/fireside");
  append.mutable_prompt()->mutable_token_ids()->add_ids(7);
  v1::AppendSessionResponse appended;
  ASSERT_TRUE(fixture_->sessions().AppendSession(&appending, append, &appended).ok());
  append.set_request_id("3f2504e0-4f89-41d3-9a0c-0305e82c3301");
  ASSERT_TRUE(fixture_->sessions().AppendSession(&repeated, append, &appended).ok());
  v1::ScoreRequest score;
  for (const int id : {1, 2, 3}) score.mutable_prompt()->mutable_token_ids()->add_ids(id);
  v1::ScoreResponse scored;
  ASSERT_TRUE(fixture_->models().Score(&scoring, score, &scored).ok());
  for (const size_t n : {1, 2}) {
    EXPECT_EQ(Call(n).method, "AppendSession");
    EXPECT_EQ(Call(n).outcome, "appended");
    EXPECT_EQ(Call(n).session, "fireside");
    EXPECT_EQ(Call(n).generated_tokens, 0);
    EXPECT_FALSE(Call(n).first_token.has_value());
  }
  EXPECT_EQ(Call(2).reused_tokens, 9);
  EXPECT_EQ(Call(3).method, "Score");
  EXPECT_EQ(Call(3).outcome, "scored");
}

TEST_F(LoggedCalls, WhatFailedSaysWhy) {
  Start(false, {.slots = 1, .max_waiting = 0});
  EXPECT_FALSE(Generate(fixture_->generation(), GreedyRequest({}, 1)).status.ok());
  EXPECT_EQ(Call(0).outcome, "INVALID_FIELD");
  EXPECT_TRUE(Call(0).failed);
  EXPECT_FALSE(Call(0).prompt_tokens.has_value());
  v1::GenerateRequest nobody = GreedyRequest({1}, 1);
  nobody.set_session("sessions/nobody");
  EXPECT_FALSE(Generate(fixture_->generation(), nobody).status.ok());
  EXPECT_EQ(Call(1).outcome, "SESSION_NOT_FOUND");
  EXPECT_EQ(Call(1).session, "nobody");
  {
    grpc::ClientContext context;
    auto reader = fixture_->generation().Generate(&context, GreedyRequest({1}, 1'000'000'000));
    v1::GenerateResponse message;
    while (reader->Read(&message) && message.delta().token_ids_size() == 0) {
    }
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    reader->Finish();
  }
  EXPECT_EQ(Call(2).outcome, "CANCELLED");
  EXPECT_GT(Call(2).generated_tokens, 0);
}

TEST_F(LoggedCalls, NoTextOfClientsUnlessItIsAskedFor) {
  v1::GenerateRequest request = GreedyRequest({}, 3);
  request.mutable_prompt()->set_text("the secret \"word\"\n" + std::string(9000, 'x'));
  for (const bool prompts : {false, true}) {
    calls_.clear();
    Start(prompts);
    EXPECT_TRUE(Generate(fixture_->generation(), request).status.ok());
    const FinishedCall call = Call(0);
    const nlohmann::json fields = nlohmann::json::parse("{" + CallAsJson(call) + "}");
    const std::string text = CallAsText(call);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    if (prompts) {
      EXPECT_THAT(fields.at("prompt").get<std::string>(), HasSubstr("the secret \"word\"\nxxx"));
      EXPECT_LE(fields.at("prompt").get<std::string>().size(), 4096u);
      EXPECT_THAT(text, HasSubstr(R"(prompt="the secret \"word\"\nxxx)"));
    } else {
      EXPECT_EQ(fields.count("prompt"), 0u);
      EXPECT_EQ(text.find("secret"), std::string::npos);
    }
    EXPECT_EQ(fields.at("generated_tokens"), 3);
    EXPECT_THAT(text, HasSubstr("generated_tokens=3 finish_reason=max_tokens first_token_ms="));
    fixture_.reset();
  }
}

TEST_F(LoggedCalls, IdsAreUniqueAndOnlyWellFormedOnesAreTaken) {
  Start();
  std::set<std::string> ids;
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    if (i % 2 == 0) context.AddMetadata("x-request-id", "no spaces, no \"quotes\"");
    EXPECT_TRUE(Generate(fixture_->generation(), GreedyRequest({1}, 1), &context).status.ok());
    const auto& metadata = context.GetServerInitialMetadata();
    const auto echoed = metadata.find("x-request-id");
    ASSERT_NE(echoed, metadata.end());
    EXPECT_EQ(std::string(echoed->second.data(), echoed->second.size()),
              Call(static_cast<size_t>(i)).request_id);
    ids.insert(Call(static_cast<size_t>(i)).request_id);
  }
  EXPECT_EQ(ids.size(), 50u);
  EXPECT_EQ(UsableRequestId("a:B-1._"), "a:B-1._");
  for (const std::string& bad :
       {std::string(), std::string(129, 'a'), std::string("a\nb"), std::string("a=b")})
    EXPECT_NE(UsableRequestId(bad), bad);
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(TraceIdOf(good), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(TraceIdOf("01" + good.substr(2) + "-more"), "0af7651916cd43dd8448eb211c80319c");
  for (const std::string& bad :
       {std::string(), good.substr(0, 54), "ff" + good.substr(2),
        "00-" + std::string(32, '0') + good.substr(35),
        "00-0AF7651916CD43DD8448EB211C80319C" + good.substr(35), "00_" + good.substr(3)})
    EXPECT_EQ(TraceIdOf(bad), "") << bad;
}

}  // namespace
}  // namespace weir
