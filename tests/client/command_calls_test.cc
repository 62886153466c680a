// The `weir` command: what each subcommand sends and prints.
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/child.h"
#include "tests/client/scripted_server.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Requests by their text format.
template <class Message>
void ExpectRequest(const ScriptedServer& server, const std::string& expected_text) {
  Message expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(expected_text, &expected));
  const Message actual = server.Last<Message>();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(actual, expected)) << actual.DebugString();
}

class Calls : public ::testing::Test {
 protected:
  ChildResult Run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    const ChildResult result = RunWeir(arguments, input);
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_EQ(result.exit, 0);
    return result;
  }
  nlohmann::json Json(const std::string& text) { return nlohmann::json::parse(text, nullptr, false); }

  ScriptedServer server_;
};

TEST_F(Calls, GenerateSendsOnlyWhatTheUserNames) {
  Run({"generate", "hi"});
  ExpectRequest<v1::GenerateRequest>(server_, "prompt { text: 'hi' } sampling {} stop {} output {}");
}

TEST_F(Calls, EveryFlagOfGenerateReachesItsField) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "protobuf's headers lay out map fields otherwise here than its library, which parses text";
#endif
  Run({"generate",
       "hi",
       "-m",
       "lin",
       "--session",
       "sessions/s",
       "--etag",
       "e",
       "--expected-position",
       "9",
       "--no-special-tokens",
       "--parse-special",
       "-t",
       "0.5",
       "--top-k",
       "40",
       "--top-p",
       "0.9",
       "--min-p",
       "0.05",
       "--repetition-penalty",
       "1.1",
       "--presence-penalty",
       "-0.5",
       "--frequency-penalty",
       "-2",
       "--logit-bias",
       "42=-100",
       "--logit-bias",
       "7:1.5",
       "--seed",
       "18446744073709551615",
       "-n",
       "0",
       "--max-time",
       "1m30s",
       "--stop",
       "[a,b]",
       "--stop",
       "--",
       "--stop",
       "-x",
       "--stop-token",
       "5,6",
       "--ignore-eos",
       "--min-tokens",
       "0",
       "--logprobs",
       "--top-logprobs",
       "2"});
  ExpectRequest<v1::GenerateRequest>(server_, R"(
    model: 'models/lin' session: 'sessions/s' etag: 'e' expected_position: 9
    prompt { text: 'hi' add_special_tokens: false parse_special: true }
    sampling { temperature: 0.5 top_k: 40 top_p: 0.9 min_p: 0.05 repetition_penalty: 1.1 presence_penalty: -0.5
      frequency_penalty: -2 logit_bias { key: 42 value: -100 } logit_bias { key: 7 value: 1.5 }
      seed: 18446744073709551615 }
    stop { max_tokens: 0 max_time { seconds: 90 } strings: '[a,b]' strings: '--' strings: '-x' token_ids: 5
      token_ids: 6 ignore_eos: true min_tokens: 0 }
    output { logprobs: true top_logprobs: 2 })");
}

TEST_F(Calls, GenerateTakesTokenIds) {
  Run({"generate", "--token-ids", "1, 15 7", "--special-tokens"});
  ExpectRequest<v1::GenerateRequest>(
      server_,
      "prompt { token_ids { ids: [1, 15, 7] } add_special_tokens: true } sampling {} stop {} output {}");
}

TEST_F(Calls, SessionsCreatePrintsTheNameAlone) {
  EXPECT_EQ(Run({"sessions", "create", "--id", "abc", "-m", "lin", "--ttl", "1h"}).out, "sessions/abc\n");
  ExpectRequest<v1::CreateSessionRequest>(
      server_, "session_id: 'abc' session { model: 'models/lin' ttl { seconds: 3600 } }");
  const std::string random = Run({"sessions", "create"}).out;
  EXPECT_EQ(random, "sessions/" + server_.Last<v1::CreateSessionRequest>().session_id() + "\n");
}

TEST_F(Calls, SessionsGetAndForkTakeIdsAndNames) {
  server_.answers = {{"weir.v1.Session",
                      "name: 'sessions/s' model: 'models/m' position: 1234 etag: 'e5' "
                      "expire_time { seconds: 1700000000 } recent_token_ids: [4, 5]"}};
  const ChildResult text = Run({"sessions", "get", "s"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("sessions/s"), HasSubstr("1234"), HasSubstr("e5"),
                              HasSubstr("2023-11-14T22:13:20Z"), HasSubstr("4 5")));
  ExpectRequest<v1::GetSessionRequest>(server_, "name: 'sessions/s'");
  const nlohmann::json json = Json(Run({"sessions", "get", "sessions/s", "--json"}).out);
  EXPECT_EQ(json["position"], 1234);
  EXPECT_EQ(json["expire_time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["recent_token_ids"], nlohmann::json({4, 5}));
  server_.answers = std::map<std::string, std::string>();
  EXPECT_EQ(Run({"sessions", "fork", "s", "--id", "child", "--etag", "e5"}).out, "sessions/child\n");
  ExpectRequest<v1::ForkSessionRequest>(server_, "name: 'sessions/s' session_id: 'child' etag: 'e5'");
}

TEST_F(Calls, SessionsListFollowsThePages) {
  server_.answers = {{"weir.v1.ListSessionsResponse",
                      "sessions { name: 'sessions/a' } sessions { name: 'sessions/b' busy: true } "
                      "next_page_token: 'more'"}};
  const std::string text = Run({"sessions", "list"}).out;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;  // a heading, two pages
  ExpectRequest<v1::ListSessionsRequest>(server_, "page_size: 1000 page_token: 'more'");
  const std::string json = Run({"sessions", "list", "--json"}).out;
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 4);
  EXPECT_EQ(Json(json.substr(0, json.find('\n')))["name"], "sessions/a");
}

TEST_F(Calls, SessionsListStopsAtItsLimit) {
  server_.answers = {
      {"weir.v1.ListSessionsResponse",
       "sessions { name: 'sessions/a' } sessions { name: 'sessions/b' } next_page_token: 'more'"}};
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(Run({"sessions", "list", "--limit", "1"}).out), 2) << "a heading, one session";
  ExpectRequest<v1::ListSessionsRequest>(server_, "page_size: 1");
  EXPECT_EQ(lines(Run({"sessions", "list", "--limit", "2"}).out), 3);
  ExpectRequest<v1::ListSessionsRequest>(server_, "page_size: 2");
  EXPECT_EQ(lines(Run({"sessions", "list", "--limit", "3", "--json"}).out), 3);
  ExpectRequest<v1::ListSessionsRequest>(server_, "page_size: 1 page_token: 'more'");
  EXPECT_EQ(lines(Run({"sessions", "list", "--limit", "5000"}).out), 5);
  ExpectRequest<v1::ListSessionsRequest>(server_, "page_size: 1000 page_token: 'more'");
}

TEST_F(Calls, SessionsDeleteTakesSeveral) {
  EXPECT_THAT(Run({"sessions", "delete", "a", "sessions/b"}).out, IsEmpty());
  EXPECT_EQ(server_.calls(), 2);
  ExpectRequest<v1::DeleteSessionRequest>(server_, "name: 'sessions/b'");
}

TEST_F(Calls, SessionsAppendReadsAPromptLikeGenerate) {
  server_.answers = {{"weir.v1.AppendSessionResponse", "appended_tokens: 4 session { position: 10 }"}};
  EXPECT_EQ(Run({"sessions", "append", "s", "more", "--expected-position", "6"}).out,
            "4 tokens appended; position 10\n");
  ExpectRequest<v1::AppendSessionRequest>(server_,
                                          "name: 'sessions/s' prompt { text: 'more' } expected_position: 6");
  Run({"sessions", "append", "s", "-"}, "from\nstdin\n");
  ExpectRequest<v1::AppendSessionRequest>(server_, "name: 'sessions/s' prompt { text: 'from\\nstdin\\n' }");
}

TEST_F(Calls, ModelsListAndGet) {
  const std::string model =
      "name: 'models/lin' mixer: 'linear_attention' parameter_count: 15000000 state { kind: KIND_FIXED "
      "fixed_bytes: 66048 }";
  server_.answers = {{"weir.v1.ListModelsResponse", "models {" + model + "}"}, {"weir.v1.Model", model}};
  for (const std::vector<std::string>& list : {std::vector<std::string>{"models"}, {"models", "list"}})
    EXPECT_THAT(Run(list).out, AllOf(HasSubstr("models/lin"), HasSubstr("linear_attention"),
                                     HasSubstr("unlimited"), HasSubstr("66048 B per session")));
  EXPECT_THAT(Run({"models", "get", "lin"}).out, HasSubstr("15000000"));
  ExpectRequest<v1::GetModelRequest>(server_, "name: 'models/lin'");
  const nlohmann::json json = Json(Run({"models", "get", "models/lin", "--json"}).out);
  EXPECT_EQ(json["state"]["kind"], "KIND_FIXED");
  EXPECT_EQ(json["context_limit"], 0);
}

TEST_F(Calls, TokenizePrintsIdsOrPieces) {
  server_.answers = {{"weir.v1.TokenizeResponse", "token_ids: [10, 11] pieces: 'a' pieces: '\\xc3\\n'"}};
  EXPECT_EQ(Run({"tokenize", "-m", "lin", "text", "--no-special-tokens"}).out, "10 11\n");
  ExpectRequest<v1::TokenizeRequest>(server_, "model: 'models/lin' text: 'text' add_special_tokens: false");
  EXPECT_EQ(Run({"tokenize", "--pieces", "text"}).out, "10\ta\n11\t\\xc3\\n\n");
  EXPECT_EQ(Json(Run({"tokenize", "--json", "-"}, "in").out)["pieces"][1], "wwo=");
  ExpectRequest<v1::TokenizeRequest>(server_, "text: 'in'");
}

TEST_F(Calls, DetokenizePrintsTheBytesAsTheyAre) {
  server_.answers = {{"weir.v1.DetokenizeResponse", "text: 'a?' raw: 'a\\xff\\000b'"}};
  EXPECT_EQ(Run({"detokenize", "1", "2", "3"}).out, std::string("a\xff\0b\n", 5));
  ExpectRequest<v1::DetokenizeRequest>(server_, "token_ids: [1, 2, 3]");
  EXPECT_EQ(Json(Run({"detokenize", "--json"}, "4 5\n").out)["raw"], "Yf8AYg==");
  ExpectRequest<v1::DetokenizeRequest>(server_, "token_ids: [4, 5]");
}

TEST_F(Calls, ScorePrintsPerplexity) {
  server_.answers = {{"weir.v1.ScoreResponse",
                      "token_ids: [1, 2, 3] logprobs: [-0.5, -1.5] total_logprob: -2 perplexity: 2.71828 "
                      "bits_per_byte: 1.25 ranks: [1, 44]"}};
  EXPECT_EQ(Run({"score", "text", "--per-token"}).out,
            "-0.5\t2\t1\n-1.5\t3\t44\ntokens:        2\ntotal_logprob: -2.000000\nperplexity:    2.71828\n"
            "bits_per_byte: 1.25\n");
  const nlohmann::json json = Json(Run({"score", "--json", "text"}).out);
  EXPECT_EQ(json["perplexity"], 2.71828);
  EXPECT_EQ(json["ranks"], nlohmann::json({1, 44}));
  // Ids of a model without a tokenizer have no bytes.
  server_.answers = {
      {"weir.v1.ScoreResponse", "token_ids: [1, 2] logprobs: [-1] total_logprob: -1 perplexity: 2.71828"}};
  EXPECT_EQ(Run({"score", "--token-ids", "1,2"}).out,
            "tokens:        1\ntotal_logprob: -1.000000\nperplexity:    2.71828\n");
  // A server of before there were ranks.
  EXPECT_THAT(Run({"score", "--token-ids", "1,2", "--per-token"}).out, HasSubstr("-1\t2\t-\ntokens:"));
}

TEST_F(Calls, InfoShowsHealthCapacityAndUse) {
  server_.answers = {
      {"weir.v1.ServerInfo",
       "version: '0.1.0' device: 'cpu' models { model { name: 'models/lin' state { fixed_bytes: 4096 } } "
       "slots_total: 8 slots_free: 3 generated_tokens: 77 }"}};
  EXPECT_THAT(Run({"info"}).out,
              AllOf(HasSubstr("SERVING"), HasSubstr("models/lin"), HasSubstr("3 of 8 free"),
                    HasSubstr("4096 B per session"), HasSubstr("77 generated")));
  const nlohmann::json json = Json(Run({"info", "--json"}).out);
  EXPECT_EQ(json["health"], "SERVING");
  EXPECT_EQ(json["server"]["models"][0]["slots_free"], 3);
  EXPECT_THAT(Run({"info", "--quiet"}).out, IsEmpty());
}

TEST_F(Calls, ThePriceOfASessionIsNamedForPagedStateToo) {
  const std::string paged = "state { kind: KIND_PAGED block_bytes: 49152 block_tokens: 16 }";
  const std::string both = "state { kind: KIND_PAGED fixed_bytes: 512 block_bytes: 49152 block_tokens: 16 }";
  server_.answers = {
      {"weir.v1.ServerInfo", "models { model { " + paged + " } } models { model { " + both + " } }"},
      {"weir.v1.Model", paged}};
  const std::string text = "3072 B per token, in blocks of 16 tokens (49152 B)\n";
  EXPECT_THAT(Run({"info"}).out,
              AllOf(HasSubstr("state:     " + text), HasSubstr("state:     512 B per session + " + text)));
  EXPECT_THAT(Run({"models", "get", "soft"}).out, HasSubstr(text));
}

TEST(InfoAsHealthCheck, SucceedsOnlyWhenServing) {
  ScriptedServer server;
  server.health = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  server.status = RichStatus(grpc::StatusCode::UNAVAILABLE, "LOADING", "the models are being loaded");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info"}, {"info", "--quiet"}, {"info", "--json"}}) {
    std::vector<std::string> line = arguments;
    line.insert(line.end(), {"--server", server.address()});
    const ChildResult result = RunWeir(line);
    EXPECT_EQ(result.exit, 1);
    EXPECT_THAT(result.err, HasSubstr("NOT_SERVING"));
  }
  EXPECT_EQ(RunWeir({"info", "--quiet", "--server", "127.0.0.1:1"}).exit, 3);
}

}  // namespace
}  // namespace weir
