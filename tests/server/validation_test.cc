// What a request may not say: every field, all at once, and nobody else notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Answer;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::ServerFixture;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::map<std::string, std::string> ViolationsOf(const grpc::Status& status) {
  std::map<std::string, std::string> fields;
  const auto bad = testing::DetailOf<google::rpc::BadRequest>(status);
  if (!bad) return fields;
  for (const auto& violation : bad->field_violations()) {
    EXPECT_EQ(fields.count(violation.field()), 0u) << violation.field();
    fields[violation.field()] = violation.description();
  }
  return fields;
}

class Validation : public ::testing::Test {
 protected:
  // Expects INVALID_ARGUMENT with this field among the violations.
  void ExpectRefused(const std::string& field, const std::function<void(v1::GenerateRequest*)>& change) {
    v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 4);
    change(&request);
    const Answer answer = Generate(fixture_.generation(), request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << field << ": " << answer.status.error_message();
    EXPECT_EQ(testing::ReasonOf(answer.status), "INVALID_FIELD");
    EXPECT_EQ(ViolationsOf(answer.status).count(field), 1u)
        << field << " in " << answer.status.error_message();
    EXPECT_TRUE(answer.messages.empty());
  }
  void ExpectServed(const std::function<void(v1::GenerateRequest*)>& change) {
    v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 4);
    change(&request);
    const Answer answer = Generate(fixture_.generation(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.token_ids.size(), 4u);
    EXPECT_EQ(answer.what_is_wrong, "");
  }

  ServerFixture fixture_;
};

TEST_F(Validation, SMP_01_NumbersThatAreNoneAreRefused) {
  using R = v1::GenerateRequest;
  for (const float bad : {kNan, kInf, -kInf, -1.0f}) {
    ExpectRefused("sampling.temperature", [=](R* r) { r->mutable_sampling()->set_temperature(bad); });
    ExpectRefused("sampling.top_p", [=](R* r) { r->mutable_sampling()->set_top_p(bad); });
    ExpectRefused("sampling.min_p", [=](R* r) { r->mutable_sampling()->set_min_p(bad); });
    ExpectRefused("sampling.repetition_penalty",
                  [=](R* r) { r->mutable_sampling()->set_repetition_penalty(bad); });
  }
  for (const float bad : {kNan, kInf, -kInf}) {
    ExpectRefused("sampling.presence_penalty",
                  [=](R* r) { r->mutable_sampling()->set_presence_penalty(bad); });
    ExpectRefused("sampling.frequency_penalty",
                  [=](R* r) { r->mutable_sampling()->set_frequency_penalty(bad); });
  }
  for (const float good : {-0.0f, 1e-38f, 1e30f})
    ExpectServed([=](R* r) { r->mutable_sampling()->set_temperature(good); });
}

TEST_F(Validation, SMP_06_TopKBeyondTheVocabularyMeansOffAndTooManyLogprobsAreRefused) {
  using R = v1::GenerateRequest;
  const int32_t v = testing::kByteVocab;
  for (const int32_t top_k : {-1, 0, 1, v - 1, v, v + 1, 9'999'999})
    ExpectServed([=](R* r) {
      r->mutable_sampling()->set_temperature(1);
      r->mutable_sampling()->set_top_k(top_k);
    });
  ExpectRefused("sampling.top_k", [](R* r) { r->mutable_sampling()->set_top_k(-2); });
  for (const int32_t bad : {-1, 21, v + 1})
    ExpectRefused("output.top_logprobs", [=](R* r) { r->mutable_output()->set_top_logprobs(bad); });
  ExpectServed([](R* r) { r->mutable_output()->set_top_logprobs(20); });
  // A greedy one and a top_k one together.
  std::thread greedy([&] { ExpectServed([](R*) {}); });
  ExpectServed([](R* r) {
    r->mutable_sampling()->set_temperature(1);
    r->mutable_sampling()->set_top_k(5);
  });
  greedy.join();
}

TEST_F(Validation, SMP_07_BiasOutsideTheVocabularyIsRefusedAndOthersGoOn) {
  using R = v1::GenerateRequest;
  v1::GenerateRequest long_request = GreedyRequest({5}, 20'000);
  Answer other;
  std::thread neighbour([&] { other = Generate(fixture_.generation(), long_request); });
  for (const int32_t id : {-1, testing::kByteVocab, 191'222})
    ExpectRefused("sampling.logit_bias",
                  [=](R* r) { (*r->mutable_sampling()->mutable_logit_bias())[id] = 1; });
  for (const float bias : {kNan, kInf, 101.0f, -101.0f})
    ExpectRefused("sampling.logit_bias",
                  [=](R* r) { (*r->mutable_sampling()->mutable_logit_bias())[1] = bias; });
  ExpectRefused("sampling.logit_bias", [](R* r) {
    for (int i = 0; i < 100'000; ++i) (*r->mutable_sampling()->mutable_logit_bias())[i] = 1;
  });
  ExpectServed([](R* r) { (*r->mutable_sampling()->mutable_logit_bias())[1] = -kInf; });
  neighbour.join();
  EXPECT_TRUE(other.status.ok()) << other.status.error_message();
  EXPECT_EQ(other.token_ids, testing::FakeModel::Generate({5}, 20'000, testing::kByteVocab));
}

TEST_F(Validation, EveryOtherFieldIsChecked) {
  using R = v1::GenerateRequest;
  ExpectRefused("model", [](R* r) { r->set_model("fake"); });
  ExpectRefused("model", [](R* r) { r->set_model("models/a/b"); });
  ExpectRefused("session", [](R* r) { r->set_session("sessions/../x"); });
  ExpectRefused("prompt", [](R* r) { r->clear_prompt(); });
  ExpectRefused("prompt", [](R* r) { r->mutable_prompt()->mutable_token_ids()->clear_ids(); });
  ExpectRefused("prompt", [](R* r) {
    r->mutable_prompt()->set_text("");
    r->mutable_prompt()->set_add_special_tokens(false);
  });
  ExpectRefused("prompt.token_ids.ids[1]",
                [](R* r) { r->mutable_prompt()->mutable_token_ids()->set_ids(1, testing::kByteVocab); });
  ExpectRefused("prompt.token_ids.ids[2]",
                [](R* r) { r->mutable_prompt()->mutable_token_ids()->set_ids(2, -1); });
  ExpectRefused("prompt.text", [](R* r) { r->mutable_prompt()->set_text(std::string((4 << 20) + 1, 'x')); });
  ExpectRefused("stop.max_tokens", [](R* r) { r->mutable_stop()->set_max_tokens(-1); });
  ExpectRefused("stop.max_tokens",
                [](R* r) { r->mutable_stop()->set_max_tokens(std::numeric_limits<int64_t>::max()); });
  ExpectRefused("stop.max_time", [](R* r) { r->mutable_stop()->mutable_max_time(); });
  ExpectRefused("stop.max_time", [](R* r) { r->mutable_stop()->mutable_max_time()->set_seconds(-1); });
  ExpectRefused("stop.max_time",
                [](R* r) { r->mutable_stop()->mutable_max_time()->set_nanos(1'000'000'000); });
  ExpectRefused("stop.strings", [](R* r) {
    for (int i = 0; i < 17; ++i) r->mutable_stop()->add_strings(std::string(1, static_cast<char>('a' + i)));
  });
  ExpectRefused("stop.strings[1]", [](R* r) {
    r->mutable_stop()->add_strings("fine");
    r->mutable_stop()->add_strings("");
  });
  ExpectRefused("stop.strings[0]", [](R* r) { r->mutable_stop()->add_strings(std::string(257, 'x')); });
  ExpectRefused("stop.token_ids", [](R* r) { r->mutable_stop()->add_token_ids(-1); });
  ExpectRefused("stop.token_ids", [](R* r) { r->mutable_stop()->add_token_ids(testing::kByteVocab); });
  ExpectRefused("stop.token_ids", [](R* r) {
    for (int i = 0; i < 2000; ++i) r->mutable_stop()->add_token_ids(1);
  });
  ExpectRefused("stop.min_tokens", [](R* r) { r->mutable_stop()->set_min_tokens(-1); });
  ExpectRefused("stop.min_tokens", [](R* r) { r->mutable_stop()->set_min_tokens(5); });
  ExpectRefused("stop.min_tokens", [](R* r) {  // more than the default of max_tokens
    r->mutable_stop()->clear_max_tokens();
    r->mutable_stop()->set_min_tokens(300);
  });
  ExpectRefused("etag", [](R* r) { r->set_etag("1"); });
  ExpectRefused("expected_position", [](R* r) { r->set_expected_position(0); });
}

TEST_F(Validation, AllFaultsAreReportedTogether) {
  v1::GenerateRequest request = GreedyRequest({1, testing::kByteVocab}, -1);
  request.mutable_sampling()->set_temperature(kNan);
  request.mutable_sampling()->set_top_p(2);
  request.mutable_stop()->add_strings("");
  request.mutable_output()->set_top_logprobs(99);
  request.set_session("not a session");
  request.set_model("not a model");
  const Answer answer = Generate(fixture_.generation(), request);
  std::vector<std::string> fields;
  for (const auto& [field, description] : ViolationsOf(answer.status)) fields.push_back(field);
  EXPECT_THAT(fields, ::testing::UnorderedElementsAre("session", "model", "sampling.temperature",
                                                      "sampling.top_p", "stop.max_tokens", "stop.strings[0]",
                                                      "output.top_logprobs", "prompt.token_ids.ids[1]"));
  EXPECT_LT(answer.status.error_message().size(), 1024u);
}

TEST_F(Validation, RPC_12_QuotedInputIsEscapedAndShort) {
  const std::string huge(1 << 20, 'n');
  for (const std::string& name : {huge, std::string("sessions/a\0b", 12), std::string("sessions/\n\x7f")}) {
    v1::GenerateRequest request = GreedyRequest({1}, 1);
    request.set_session(name);
    const Answer answer = Generate(fixture_.generation(), request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_LT(answer.status.error_message().size(), 1024u);
    for (const char c : answer.status.error_message())
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << answer.status.error_message();
  }
  v1::GenerateRequest request = GreedyRequest({1}, 1);
  request.set_session(std::string("sessions/a\0b", 12));
  EXPECT_THAT(Generate(fixture_.generation(), request).status.error_message(), HasSubstr("a\\x00b"));
}

TEST_F(Validation, UnknownNamesAreNotFoundWithTheirResource) {
  v1::GenerateRequest request = GreedyRequest({1}, 1);
  request.set_model("models/other");
  Answer answer = Generate(fixture_.generation(), request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(testing::ReasonOf(answer.status), "MODEL_NOT_FOUND");
  EXPECT_EQ(testing::DetailOf<google::rpc::ResourceInfo>(answer.status)->resource_name(), "models/other");
  EXPECT_THAT(answer.status.error_message(), HasSubstr("models/fake"));
  request = GreedyRequest({1}, 1);
  request.set_session("sessions/nobody");
  answer = Generate(fixture_.generation(), request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(testing::DetailOf<google::rpc::ResourceInfo>(answer.status)->resource_name(), "sessions/nobody");
}

TEST_F(Validation, TheRoutingHintMustNameTheSessionOfTheRequest) {
  v1::CreateSessionRequest create;
  create.set_session_id("s1");
  v1::Session session;
  grpc::ClientContext create_context;
  create_context.AddMetadata("x-session-id", "s1");
  ASSERT_TRUE(fixture_.sessions().CreateSession(&create_context, create, &session).ok());
  for (const auto& [hint, right] :
       std::map<std::string, bool>{{"s1", true}, {"sessions/s1", true}, {"s2", false}}) {
    v1::GenerateRequest request = GreedyRequest({1}, 1);
    request.set_session("sessions/s1");
    grpc::ClientContext context;
    context.AddMetadata("x-session-id", hint);
    const Answer answer = Generate(fixture_.generation(), request, &context);
    EXPECT_EQ(answer.status.ok(), right) << hint;
    if (!right) EXPECT_EQ(ViolationsOf(answer.status).count("x-session-id"), 1u);
  }
}

TEST(ValidationOfContext, SCH_14_PromptBeyondTheContextNamesBothNumbers) {
  testing::FakeModelOptions paged;
  paged.paged = true;
  paged.context_limit = 512;
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("paged", paged, {.slots = 2, .kv_blocks = 64}));
  ServerFixture fixture(std::move(models));
  for (const int length : {511, 512}) {
    const Answer answer = Generate(fixture.generation(), GreedyRequest(std::vector<int32_t>(length, 7), 8));
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.what_is_wrong, "");
    EXPECT_TRUE(answer.finish->has_context_limit());
    EXPECT_EQ(answer.finish->context_limit(), 512);
  }
  for (const int length : {513, 600}) {
    const Answer answer = Generate(fixture.generation(), GreedyRequest(std::vector<int32_t>(length, 7), 8));
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answer.status.error_message(), HasSubstr(std::to_string(length)));
    EXPECT_THAT(answer.status.error_message(), HasSubstr("512"));
  }
}

}  // namespace
}  // namespace weir
