// Sessions, Models and Server over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "google/rpc/error_details.pb.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Answer;
using testing::FakeModel;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::ServerFixture;

// stub.Method(request), with a context of its own.
template <class Stub, class Request, class Response>
grpc::Status Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response* response, const std::string& hint = "") {
  grpc::ClientContext context;
  if (!hint.empty()) context.AddMetadata("x-session-id", hint);
  return (stub.*method)(&context, request, response);
}

class Calls : public ::testing::Test {
 protected:
  using Sessions = v1::Sessions::Stub;
  using Models = v1::Models::Stub;

  static std::vector<testing::ServedModel> Two() {
    std::vector<testing::ServedModel> models;
    models.push_back(testing::MakeServedFake("one", {}, {.slots = 8}));
    models.push_back(testing::MakeServedFake("two", {}, {.slots = 2}));
    return models;
  }
  grpc::Status Create(const std::string& id, const std::string& model, v1::Session* session,
                      const std::string& hint = "") {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    request.mutable_session()->set_model(model);
    return Call(fixture_.sessions(), &Sessions::CreateSession, request, session, hint);
  }
  v1::Session Get(const std::string& name) {
    v1::GetSessionRequest request;
    request.set_name(name);
    v1::Session session;
    const grpc::Status status = Call(fixture_.sessions(), &Sessions::GetSession, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session;
  }

  ServerFixture fixture_{Two()};
};

TEST_F(Calls, ASessionLivesFromCreateToDelete) {
  v1::Session created;
  ASSERT_TRUE(Create("talk", "models/one", &created).ok());
  EXPECT_EQ(created.name(), "sessions/talk");
  EXPECT_EQ(created.model(), "models/one");
  EXPECT_EQ(created.position(), 0);
  EXPECT_GT(created.state_bytes(), 0);
  EXPECT_GT(created.expire_time().seconds(), created.create_time().seconds());

  v1::AppendSessionRequest append;
  append.set_name("sessions/talk");
  append.mutable_prompt()->mutable_token_ids()->mutable_ids()->Add(5);
  append.mutable_prompt()->mutable_token_ids()->mutable_ids()->Add(6);
  append.set_expected_position(0);
  v1::AppendSessionResponse appended;
  ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::AppendSession, append, &appended).ok());
  EXPECT_EQ(appended.appended_tokens(), 2);
  EXPECT_EQ(appended.session().position(), 2);
  EXPECT_NE(appended.session().etag(), created.etag());

  // The position and the etag that a caller relies on must be the session's.
  grpc::Status status = Call(fixture_.sessions(), &Sessions::AppendSession, append, &appended);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  v1::GenerateRequest request = GreedyRequest({7}, 4);
  request.set_session("sessions/talk");
  request.set_etag(created.etag());
  EXPECT_EQ(testing::ReasonOf(Generate(fixture_.generation(), request).status), "ETAG_MISMATCH");
  request.set_etag(appended.session().etag());
  const Answer answer = Generate(fixture_.generation(), request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.token_ids, FakeModel::Generate({5, 6, 7}, 4, testing::kByteVocab));

  const v1::Session now = Get("sessions/talk");
  EXPECT_EQ(now.etag(), answer.finish->etag());
  EXPECT_EQ(now.position(), 7);
  std::vector<int32_t> all = {5, 6, 7};
  all.insert(all.end(), answer.token_ids.begin(), answer.token_ids.end());
  EXPECT_THAT(now.recent_token_ids(), ::testing::ElementsAreArray(all));
  EXPECT_FALSE(now.busy());

  // A fork goes on by itself and leaves the parent as it was.
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/talk");
  fork.set_session_id("branch");
  v1::Session child;
  ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::ForkSession, fork, &child).ok());
  EXPECT_EQ(child.position(), 7);
  EXPECT_EQ(Call(fixture_.sessions(), &Sessions::ForkSession, fork, &child).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  // Without a name of its own it has its parent's up to a dot, by which routers find its server.
  fork.clear_session_id();
  ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::ForkSession, fork, &child).ok());
  EXPECT_THAT(child.name(), ::testing::MatchesRegex("sessions/talk\\.[0-9a-f]{32}"));
  fork.set_name(child.name());
  v1::Session grandchild;
  ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::ForkSession, fork, &grandchild).ok());
  EXPECT_THAT(grandchild.name(), ::testing::MatchesRegex("sessions/talk\\.[0-9a-f]{32}"));
  EXPECT_NE(grandchild.name(), child.name());

  v1::GenerateRequest empty = GreedyRequest({}, 3);
  empty.clear_prompt();
  empty.set_session("sessions/branch");
  EXPECT_EQ(Generate(fixture_.generation(), empty).token_ids,
            FakeModel::Generate(all, 3, testing::kByteVocab));
  EXPECT_EQ(Get("sessions/talk").position(), 7);

  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/talk");
  remove.set_etag("stale");
  google::protobuf::Empty nothing;
  EXPECT_EQ(Call(fixture_.sessions(), &Sessions::DeleteSession, remove, &nothing).error_code(),
            grpc::StatusCode::ABORTED);
  remove.clear_etag();
  EXPECT_TRUE(Call(fixture_.sessions(), &Sessions::DeleteSession, remove, &nothing).ok());
  status = Call(fixture_.sessions(), &Sessions::DeleteSession, remove, &nothing);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(testing::DetailOf<google::rpc::ResourceInfo>(status)->resource_name(), "sessions/talk");
}

TEST_F(Calls, ASecondWriterIsAborted) {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("slow", {.step_time = absl::Milliseconds(2)}));
  ServerFixture fixture(std::move(models));
  v1::CreateSessionRequest create;
  create.set_session_id("s");
  v1::Session session;
  ASSERT_TRUE(Call(fixture.sessions(), &Sessions::CreateSession, create, &session).ok());
  v1::GenerateRequest request = GreedyRequest({1}, 1'000'000);
  request.set_session("sessions/s");
  grpc::ClientContext context;
  auto reader = fixture.generation().Generate(&context, request);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  const Answer second = Generate(fixture.generation(), request);
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(testing::ReasonOf(second.status), "SESSION_BUSY");
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // The session is free for the next turn, which goes on where the cancelled one stopped.
  request.mutable_stop()->set_max_tokens(1);
  Answer third;
  EXPECT_TRUE(
      testing::WaitFor([&] { return (third = Generate(fixture.generation(), request)).status.ok(); }));
  EXPECT_GT(third.info->reused_tokens(), 0);
}

TEST_F(Calls, ListsArePagedWithoutGapsOrRepeats) {
  for (const char* id : {"d", "a", "c", "b", "e"}) {
    v1::Session session;
    ASSERT_TRUE(Create(id, "models/one", &session).ok());
  }
  std::vector<std::string> names;
  v1::ListSessionsRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    v1::ListSessionsResponse page;
    ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::ListSessions, request, &page).ok());
    for (const v1::Session& session : page.sessions()) {
      names.push_back(session.name());
      EXPECT_EQ(session.recent_token_ids_size(), 0);
    }
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_THAT(names,
              ::testing::ElementsAre("sessions/a", "sessions/b", "sessions/c", "sessions/d", "sessions/e"));
  v1::ListSessionsResponse page;
  request.set_page_size(-1);
  EXPECT_EQ(Call(fixture_.sessions(), &Sessions::ListSessions, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_page_size(0);
  request.set_page_token("../x");
  EXPECT_EQ(Call(fixture_.sessions(), &Sessions::ListSessions, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Calls, CreateIsRefusedWhenNoSlotIsLeftAndNamesTheBytes) {
  v1::Session session;
  ASSERT_TRUE(Create("", "models/two", &session).ok());
  EXPECT_EQ(session.name().size(), std::string("sessions/").size() + 32);
  ASSERT_TRUE(Create("", "models/two", &session).ok());
  const grpc::Status full = Create("", "models/two", &session);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(testing::ReasonOf(full), "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_THAT(full.error_message(), HasSubstr(std::to_string(session.state_bytes())));
  EXPECT_TRUE(testing::DetailOf<google::rpc::QuotaFailure>(full).has_value());
}

TEST_F(Calls, CreateChecksItsFieldsAndTakesTheIdOfTheRoutingHint) {
  v1::Session session;
  EXPECT_EQ(Create("", "", &session).error_code(), grpc::StatusCode::INVALID_ARGUMENT);  // two models
  EXPECT_EQ(Create("a/b", "models/one", &session).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Create("", "models/none", &session).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(Create("", "models/one", &session, "chosen").ok());
  EXPECT_EQ(session.name(), "sessions/chosen");
  EXPECT_EQ(Create("chosen", "models/two", &session).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Create("x", "models/one", &session, "y").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::CreateSessionRequest request;
  request.mutable_session()->set_model("models/one");
  request.mutable_session()->mutable_ttl()->set_seconds(-1);
  EXPECT_EQ(Call(fixture_.sessions(), &Sessions::CreateSession, request, &session).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_session()->mutable_ttl()->set_seconds(5);
  ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::CreateSession, request, &session).ok());
  EXPECT_NEAR(static_cast<double>(session.expire_time().seconds() - session.create_time().seconds()), 5, 1);
  // The longest time that the server allows is served, more is refused and not cut.
  request.mutable_session()->mutable_ttl()->set_seconds(24 * 3600);
  ASSERT_TRUE(Call(fixture_.sessions(), &Sessions::CreateSession, request, &session).ok());
  EXPECT_NEAR(static_cast<double>(session.expire_time().seconds() - session.create_time().seconds()),
              24 * 3600, 1);
  for (const bool by_ttl : {true, false}) {
    if (by_ttl)
      request.mutable_session()->mutable_ttl()->set_nanos(1);
    else
      request.mutable_session()->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(absl::Now()) +
                                                                    25 * 3600);
    const grpc::Status too_long = Call(fixture_.sessions(), &Sessions::CreateSession, request, &session);
    EXPECT_EQ(too_long.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(too_long.error_message(), HasSubstr("allows, 24h (--max-session-ttl)"));
    const auto bad = testing::DetailOf<google::rpc::BadRequest>(too_long);
    ASSERT_TRUE(bad.has_value());
    EXPECT_EQ(bad->field_violations(0).field(), by_ttl ? "session.ttl" : "session.expire_time");
  }
  v1::GetSessionRequest get;
  get.set_name("chosen");
  EXPECT_EQ(Call(fixture_.sessions(), &Sessions::GetSession, get, &session).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  // A session's model need not be named, and another one is refused.
  v1::GenerateRequest generate = GreedyRequest({1}, 2);
  generate.set_session("sessions/chosen");
  EXPECT_EQ(Generate(fixture_.generation(), generate).info->model(), "models/one");
  generate.set_model("models/two");
  EXPECT_EQ(Generate(fixture_.generation(), generate).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Calls, ModelsAreDescribedAndPaged) {
  v1::GetModelRequest get;
  get.set_name("models/one");
  v1::Model model;
  ASSERT_TRUE(Call(fixture_.models(), &Models::GetModel, get, &model).ok());
  EXPECT_EQ(model.name(), "models/one");
  EXPECT_EQ(model.mixer(), "fake");
  EXPECT_EQ(model.vocab_size(), testing::kByteVocab);
  EXPECT_EQ(model.state().kind(), v1::StateCost::KIND_FIXED);
  EXPECT_GT(model.state().fixed_bytes(), 0);
  EXPECT_EQ(model.state().block_bytes(), 0);
  get.set_name("models/three");
  EXPECT_EQ(Call(fixture_.models(), &Models::GetModel, get, &model).error_code(),
            grpc::StatusCode::NOT_FOUND);
  v1::ListModelsRequest list;
  list.set_page_size(1);
  v1::ListModelsResponse page;
  ASSERT_TRUE(Call(fixture_.models(), &Models::ListModels, list, &page).ok());
  ASSERT_EQ(page.models_size(), 1);
  EXPECT_EQ(page.models(0).name(), "models/one");
  list.set_page_token(page.next_page_token());
  ASSERT_TRUE(Call(fixture_.models(), &Models::ListModels, list, &page).ok());
  EXPECT_EQ(page.models(0).name(), "models/two");
  EXPECT_EQ(page.next_page_token(), "");
}

TEST_F(Calls, TokenizeAndDetokenizeAreInverse) {
  v1::TokenizeRequest tokenize;
  tokenize.set_model("models/one");
  tokenize.set_text("a é\n");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(Call(fixture_.models(), &Models::Tokenize, tokenize, &tokens).ok());
  ASSERT_EQ(tokens.token_ids_size(), 6);
  EXPECT_EQ(tokens.token_ids(0), testing::kBosId);
  EXPECT_EQ(tokens.pieces_size(), 6);
  EXPECT_EQ(tokens.pieces(0), "");
  EXPECT_EQ(tokens.pieces(3), "\xC3");  // half a character
  v1::DetokenizeRequest detokenize;
  detokenize.set_model("models/one");
  *detokenize.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(Call(fixture_.models(), &Models::Detokenize, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "a é\n");
  EXPECT_EQ(text.raw(), "a é\n");
  detokenize.clear_token_ids();
  for (const int id : {0x78, 0xFF, 0xF0, 0x9F}) detokenize.add_token_ids(id);
  ASSERT_TRUE(Call(fixture_.models(), &Models::Detokenize, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "x\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(text.raw(), "x\xFF\xF0\x9F");
  detokenize.add_token_ids(testing::kByteVocab);
  EXPECT_EQ(Call(fixture_.models(), &Models::Detokenize, detokenize, &text).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  // RPC-08: replies that a stock client could not take are refused with the limit in the text.
  std::string text_of_words;
  for (int i = 0; i < 1 << 19; ++i) text_of_words += " x";
  tokenize.set_text(text_of_words);
  const grpc::Status status = Call(fixture_.models(), &Models::Tokenize, tokenize, &tokens);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("bytes"));
}

TEST_F(Calls, ScoreGivesOneLogprobPerTokenAfterTheFirst) {
  v1::ScoreRequest request;
  request.set_model("models/one");
  request.mutable_prompt()->set_text("some text, 24 bytes long");
  request.mutable_prompt()->set_add_special_tokens(false);
  v1::ScoreResponse score;
  const grpc::Status status = Call(fixture_.models(), &Models::Score, request, &score);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(score.token_ids_size(), 24);
  ASSERT_EQ(score.logprobs_size(), 23);
  ASSERT_EQ(score.ranks_size(), 23);
  for (const int32_t rank : score.ranks()) EXPECT_TRUE(rank >= 1 && rank <= testing::kByteVocab) << rank;
  double total = 0;
  for (const float logprob : score.logprobs()) {
    EXPECT_LE(logprob, 0);
    total += logprob;
  }
  EXPECT_NEAR(score.total_logprob(), total, 1e-6);
  EXPECT_NEAR(score.perplexity(), std::exp(-total / 23), 1e-6 * score.perplexity());
  EXPECT_NEAR(score.bits_per_byte(), -total / std::log(2.0) / 23, 1e-6);
  request.mutable_prompt()->set_text("x");
  EXPECT_EQ(Call(fixture_.models(), &Models::Score, request, &score).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Calls, ServerInfoCountsWhatIsHeldAndDone) {
  v1::Session session;
  ASSERT_TRUE(Create("held", "models/one", &session).ok());
  v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 10);
  request.set_model("models/two");
  ASSERT_TRUE(Generate(fixture_.generation(), request).status.ok());
  v1::ServerInfo info;
  const auto read = [&] {
    return Call(fixture_.info(), &v1::Server::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok();
  };
  ASSERT_TRUE(testing::WaitFor([&] { return read() && info.models(1).slots_free() == 2; }));
  EXPECT_EQ(info.version(), WEIR_VERSION);
  EXPECT_EQ(info.device(), "cpu");
  EXPECT_EQ(info.compute_threads(), 1);
  EXPECT_GT(info.process_anonymous_bytes(), 1 << 20);
  EXPECT_GE(info.process_proportional_bytes(), info.process_anonymous_bytes());
  EXPECT_GE(info.process_resident_bytes(), info.process_proportional_bytes());
  EXPECT_FALSE(info.has_device_used_bytes()) << "the CPU has no memory of its own";
  EXPECT_GT(info.device_allocated_bytes(), 0);
  EXPECT_FALSE(info.draining());
  ASSERT_EQ(info.models_size(), 2);
  EXPECT_EQ(info.models(0).slots_total(), 8);
  EXPECT_EQ(info.models(0).slots_free(), 7);
  EXPECT_EQ(info.models(0).sessions(), 1);
  EXPECT_EQ(info.models(0).state_pool_bytes(), 8 * session.state_bytes());
  EXPECT_EQ(info.models(1).prompt_tokens(), 3);
  EXPECT_EQ(info.models(1).generated_tokens(), 10);
  EXPECT_EQ(info.models(1).requests_running(), 0);
}

// The witness that a load test believes: it has to see what the process really takes.
TEST_F(Calls, ServerInfoSeesMemoryThatIsTaken) {
  const auto anonymous = [&] {
    v1::ServerInfo info;
    EXPECT_TRUE(
        Call(fixture_.info(), &v1::Server::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
    return info.process_anonymous_bytes();
  };
  const int64_t before = anonymous();
  constexpr int64_t kBytes = 64 << 20;
  const std::vector<char> taken(kBytes, 'x');
  EXPECT_GE(anonymous() - before, kBytes - (4 << 20));
  EXPECT_EQ(taken.back(), 'x');
}

}  // namespace
}  // namespace weir
