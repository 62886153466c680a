// A model without a tokenizer, over a real socket: token ids in, token ids out, and a clear word where text
// is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

std::vector<ServedModel> IdsOnly(Device& device) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  LoadOptions options;
  options.ids_only = true;
  absl::StatusOr<LoadedModel> loaded = LoadModel(folder.path(), device, options);
  WEIR_CHECK(loaded.ok());
  loaded->name = "ids";
  std::vector<ServedModel> models;
  models.push_back(MakeServedModel(*std::move(loaded), {.slots = 4}));
  return models;
}

class IdsOnlyServer : public ::testing::Test {
 protected:
  static void ExpectInvalid(const grpc::Status& status, const std::string& field, const std::string& remedy) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(remedy));
    const auto bad = DetailOf<google::rpc::BadRequest>(status);
    ASSERT_TRUE(bad.has_value() && bad->field_violations_size() == 1);
    EXPECT_EQ(bad->field_violations(0).field(), field);
  }
  const std::unique_ptr<Device> device_ = CreateCpuDevice(1);
  ServerFixture fixture_{IdsOnly(*device_)};
};

TEST_F(IdsOnlyServer, IdsGoInAndIdsComeOut) {
  v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 12);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_top_logprobs(2);
  const Answer answer = Generate(fixture_.generation(), request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.what_is_wrong, "");
  EXPECT_EQ(answer.token_ids.size(), 12u);
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.logprobs.size(), 12u);
}

TEST_F(IdsOnlyServer, TextIsRefusedWithTheRemedy) {
  v1::GenerateRequest request = GreedyRequest({1}, 4);
  request.mutable_prompt()->set_text("once");
  ExpectInvalid(Generate(fixture_.generation(), request).status, "prompt.text", "send token_ids");
  request = GreedyRequest({1}, 4);
  request.mutable_stop()->add_strings("end");
  ExpectInvalid(Generate(fixture_.generation(), request).status, "stop.strings", "stop.token_ids");

  grpc::ClientContext tokenize_context, detokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("once");
  v1::TokenizeResponse tokenized;
  ExpectInvalid(fixture_.models().Tokenize(&tokenize_context, tokenize, &tokenized), "model",
                "has no tokenizer");
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(1);
  v1::DetokenizeResponse detokenized;
  ExpectInvalid(fixture_.models().Detokenize(&detokenize_context, detokenize, &detokenized), "model",
                "has no tokenizer");
}

TEST_F(IdsOnlyServer, TheModelSaysSo) {
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name("models/ids");
  v1::Model model;
  ASSERT_TRUE(fixture_.models().GetModel(&context, request, &model).ok());
  EXPECT_FALSE(model.has_tokenizer());
  EXPECT_EQ(model.vocab_size(), 97);
}

TEST_F(IdsOnlyServer, ScoresHaveNoBitsPerByte) {
  grpc::ClientContext context;
  v1::ScoreRequest request;
  for (const int id : {1, 2, 3, 4}) request.mutable_prompt()->mutable_token_ids()->add_ids(id);
  v1::ScoreResponse response;
  ASSERT_TRUE(fixture_.models().Score(&context, request, &response).ok());
  EXPECT_EQ(response.logprobs_size(), 3);
  EXPECT_GT(response.perplexity(), 1);
  EXPECT_EQ(response.bits_per_byte(), 0) << "there are no bytes";
}

}  // namespace
}  // namespace weir::testing
