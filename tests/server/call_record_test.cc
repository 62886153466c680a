// What the log says of calls, and that nothing of their text is in it unless it was asked for.
#include "server/frontend/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fmt/format.h"
#include "google/protobuf/descriptor.h"
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
  const FinishedCall call = Call(1);
  EXPECT_EQ(call.method, "Generate");
  EXPECT_EQ(call.request_id, "mine-1");
  EXPECT_EQ(call.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(call.model, "fake");
  EXPECT_EQ(call.session, "fireside");
  EXPECT_EQ(call.prompt_tokens, 3);
  EXPECT_EQ(call.generated_tokens, 5);
  EXPECT_EQ(call.outcome, "max_tokens");
  EXPECT_EQ(call.code, "OK");
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
  for (const size_t n : {2, 3}) {
    EXPECT_EQ(Call(n).method, "AppendSession");
    EXPECT_EQ(Call(n).outcome, "appended");
    EXPECT_EQ(Call(n).session, "fireside");
    EXPECT_EQ(Call(n).generated_tokens, 0);
    EXPECT_FALSE(Call(n).first_token.has_value());
  }
  EXPECT_EQ(Call(3).reused_tokens, 9);
  EXPECT_EQ(Call(4).method, "Score");
  EXPECT_EQ(Call(4).outcome, "scored");
}

// Of every method but those above, in the order in which they are called.
TEST_F(LoggedCalls, EveryOtherCallIsOneLineToo) {
  Start();
  v1::Sessions::Stub& sessions = fixture_->sessions();
  size_t lines = 0;
  // The line of a call that has just ended: there is one, and it is this call's.
  const auto line_of = [&](const std::string& method, const auto& call, const std::string& code = "OK") {
    grpc::ClientContext context;
    const std::string id = fmt::format("id-{}", lines);
    context.AddMetadata("x-request-id", id);
    EXPECT_EQ(call(&context).ok(), code == "OK") << method;
    const FinishedCall line = Call(lines++);
    EXPECT_EQ(line.method, method);
    EXPECT_EQ(line.request_id, id) << method;
    EXPECT_EQ(line.code, code) << method;
    EXPECT_EQ(line.failed, code != "OK") << method;
    EXPECT_EQ(CallAsText(line).find("secret"), std::string::npos) << method;
    return line;
  };
  const auto unary = [](auto method, const auto& request, auto* response) {
    return [=, &request](grpc::ClientContext* context) { return method(context, request, response); };
  };
  v1::Session session;
  v1::CreateSessionRequest create;
  create.set_session_id("fireside");
  const auto create_session = [&](auto... of_call) { return sessions.CreateSession(of_call...); };
  FinishedCall line = line_of("CreateSession", unary(create_session, create, &session));
  EXPECT_EQ(line.session, "fireside");
  EXPECT_EQ(line.model, "fake");
  EXPECT_GT(line.duration, absl::ZeroDuration());
  line = line_of("CreateSession", unary(create_session, create, &session), "ALREADY_EXISTS");
  EXPECT_EQ(line.session, "fireside");
  EXPECT_EQ(line.outcome, "SESSION_EXISTS");
  // A name that was made up by the server is in the line, too.
  line = line_of("CreateSession", unary(create_session, v1::CreateSessionRequest(), &session));
  EXPECT_EQ("sessions/" + line.session, session.name());
  v1::CreateSessionRequest wrong;
  wrong.set_session_id("not a name: secret");
  line = line_of("CreateSession", unary(create_session, wrong, &session), "INVALID_ARGUMENT");
  EXPECT_EQ(line.session, "");

  v1::GetSessionRequest get;
  get.set_name("sessions/fireside");
  line = line_of("GetSession", unary([&](auto... c) { return sessions.GetSession(c...); }, get, &session));
  EXPECT_EQ(line.session, "fireside");
  v1::ListSessionsResponse listed;
  line_of("ListSessions",
          unary([&](auto... c) { return sessions.ListSessions(c...); }, v1::ListSessionsRequest(), &listed));
  v1::AppendSessionRequest append;
  append.set_name("sessions/fireside");
  append.mutable_prompt()->set_text("secret");
  append.set_request_id("3f2504e0-4f89-41d3-9a0c-0305e82c3301");
  v1::AppendSessionResponse appended;
  const auto append_session =
      unary([&](auto... c) { return sessions.AppendSession(c...); }, append, &appended);
  line = line_of("AppendSession", append_session);
  EXPECT_EQ(line.outcome, "appended");
  line = line_of("AppendSession", append_session);  // answered by the first one
  EXPECT_EQ(line.outcome, "");
  EXPECT_EQ(line.session, "fireside");

  v1::Snapshot snapshot;
  v1::CreateSnapshotRequest keep;
  keep.set_parent("sessions/fireside");
  keep.set_snapshot_id("kept");
  line = line_of("CreateSnapshot",
                 unary([&](auto... c) { return sessions.CreateSnapshot(c...); }, keep, &snapshot));
  EXPECT_EQ(line.session, "fireside");
  EXPECT_EQ(line.snapshot, "kept");
  v1::GetSnapshotRequest get_snapshot;
  get_snapshot.set_name("sessions/fireside/snapshots/kept");
  line_of("GetSnapshot",
          unary([&](auto... c) { return sessions.GetSnapshot(c...); }, get_snapshot, &snapshot));
  v1::ListSnapshotsRequest list_snapshots;
  list_snapshots.set_parent("sessions/fireside");
  v1::ListSnapshotsResponse snapshots;
  line_of("ListSnapshots",
          unary([&](auto... c) { return sessions.ListSnapshots(c...); }, list_snapshots, &snapshots));
  v1::RollbackSessionRequest rollback;
  rollback.set_name("sessions/fireside");
  rollback.set_snapshot("sessions/fireside/snapshots/kept");
  line = line_of("RollbackSession",
                 unary([&](auto... c) { return sessions.RollbackSession(c...); }, rollback, &session));
  EXPECT_EQ(line.snapshot, "kept");
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/fireside");
  fork.set_session_id("second");
  line = line_of("ForkSession", unary([&](auto... c) { return sessions.ForkSession(c...); }, fork, &session));
  EXPECT_EQ(line.session, "fireside");
  EXPECT_EQ(line.new_session, "second");
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/second");
  update.mutable_session()->mutable_ttl()->set_seconds(60);
  line_of("UpdateSession", unary([&](auto... c) { return sessions.UpdateSession(c...); }, update, &session));

  std::string exported;
  line = line_of("ExportSession", [&](grpc::ClientContext* context) {
    v1::ExportSessionRequest request;
    request.set_name("sessions/fireside");
    auto reader = sessions.ExportSession(context, request);
    for (v1::ExportSessionResponse message; reader->Read(&message);) exported += message.data();
    return reader->Finish();
  });
  EXPECT_EQ(line.session, "fireside");
  EXPECT_EQ(line.bytes, static_cast<int64_t>(exported.size()));
  const auto import = [&](const std::string& bytes) {
    return [&](grpc::ClientContext* context) {
      auto writer = sessions.ImportSession(context, &session);
      v1::ImportSessionRequest message;
      message.set_session_id("third");
      message.set_total_bytes(static_cast<int64_t>(bytes.size()));
      message.set_data(bytes);
      writer->Write(message);
      writer->WritesDone();
      return writer->Finish();
    };
  };
  line = line_of("ImportSession", import(exported));
  EXPECT_EQ(line.session, "third");
  EXPECT_EQ(line.bytes, static_cast<int64_t>(exported.size()));
  std::string damaged = exported;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  line = line_of("ImportSession", import(damaged), "DATA_LOSS");
  EXPECT_EQ(line.outcome, "STATE_CORRUPT");
  EXPECT_EQ(line.session, "third");

  v1::DeleteSnapshotRequest delete_snapshot;
  delete_snapshot.set_name("sessions/fireside/snapshots/kept");
  google::protobuf::Empty nothing;
  line_of("DeleteSnapshot",
          unary([&](auto... c) { return sessions.DeleteSnapshot(c...); }, delete_snapshot, &nothing));
  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/fireside");
  const auto delete_session =
      unary([&](auto... c) { return sessions.DeleteSession(c...); }, remove, &nothing);
  line_of("DeleteSession", delete_session);
  line = line_of("DeleteSession", delete_session, "NOT_FOUND");
  EXPECT_EQ(line.outcome, "SESSION_NOT_FOUND");
  EXPECT_EQ(line.session, "fireside");

  v1::Models::Stub& models = fixture_->models();
  v1::TokenizeRequest tokenize;
  tokenize.set_text("secret");
  tokenize.set_model("models/fake");
  v1::TokenizeResponse tokens;
  line = line_of("Tokenize", unary([&](auto... c) { return models.Tokenize(c...); }, tokenize, &tokens));
  EXPECT_EQ(line.model, "fake");
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(1);
  v1::DetokenizeResponse text;
  line_of("Detokenize", unary([&](auto... c) { return models.Detokenize(c...); }, detokenize, &text));
  v1::Model model;
  v1::GetModelRequest get_model;
  get_model.set_name("models/none");
  line_of("GetModel", unary([&](auto... c) { return models.GetModel(c...); }, get_model, &model),
          "NOT_FOUND");
  v1::ListModelsResponse all;
  line_of("ListModels",
          unary([&](auto... c) { return models.ListModels(c...); }, v1::ListModelsRequest(), &all));
  v1::ServerInfo info;
  line_of("GetServerInfo", unary([&](auto... c) { return fixture_->info().GetServerInfo(c...); },
                                 v1::GetServerInfoRequest(), &info));
  // And no further one.
  MutexLock lock(&mu_);
  EXPECT_EQ(calls_.size(), lines);
}

// All that the contract has are above; one that is added has to be found here.
TEST_F(LoggedCalls, EveryMethodIsKnownToReadOrToChange) {
  const std::set<std::string> reading = {"GetSession",    "ListSessions", "GetSnapshot",
                                         "ListSnapshots", "GetModel",     "ListModels",
                                         "Tokenize",      "Detokenize",   "GetServerInfo"};
  const std::set<std::string> changing = {
      "Generate",       "CreateSession",  "UpdateSession",   "DeleteSession", "AppendSession", "ForkSession",
      "CreateSnapshot", "DeleteSnapshot", "RollbackSession", "ExportSession", "ImportSession", "Score"};
  for (const char* service : {"weir.v1.Generation", "weir.v1.Sessions", "weir.v1.Models", "weir.v1.Server"}) {
    const auto* const methods =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
    ASSERT_NE(methods, nullptr) << service;
    for (int i = 0; i < methods->method_count(); ++i) {
      const std::string method = methods->method(i)->name();
      EXPECT_EQ(reading.count(method) + changing.count(method), 1u) << method;
      EXPECT_EQ(ReadsOnly(method), reading.count(method) == 1) << method;
    }
  }
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
  EXPECT_EQ(Call(1).code, "NOT_FOUND");
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
