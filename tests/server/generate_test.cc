// Generate over a real socket: the shape of the stream, text, cancel, deadline, and readers that do not read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Answer;
using testing::FakeModel;
using testing::FixtureOptions;
using testing::Generate;
using testing::GreedyRequest;
using testing::ServerFixture;
using testing::WaitFor;

std::vector<testing::ServedModel> OneFake(const testing::FakeModelOptions& options,
                                          const RunnerLimits& limits,
                                          std::shared_ptr<FakeModel>* model = nullptr) {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", options, limits, model));
  return models;
}

bool IsStrictUtf8(const std::string& text) {
  v1::Delta delta;  // proto3 strings that are not UTF-8 do not parse
  std::string wire = {0x12};
  for (size_t size = text.size();; size >>= 7) {
    wire.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
    if (size <= 0x7f) break;
  }
  return delta.ParseFromString(wire + text);
}

TEST(Generate, TheStreamIsPromptInfoDeltasFinish) {
  ServerFixture fixture;
  const std::vector<int32_t> prompt = {1, 2, 3};
  v1::GenerateRequest request = GreedyRequest(prompt, 50);
  request.mutable_sampling()->set_seed(42);
  const Answer answer = Generate(fixture.generation(), request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.what_is_wrong, "");
  EXPECT_EQ(answer.token_ids, FakeModel::Generate(prompt, 50, testing::kByteVocab));
  EXPECT_EQ(answer.info->prompt_tokens(), 3);
  EXPECT_EQ(answer.info->reused_tokens(), 0);
  EXPECT_EQ(answer.info->miss_reason(), "no_session");
  EXPECT_EQ(answer.info->model(), "models/fake");
  EXPECT_EQ(answer.info->seed(), 42u);
  EXPECT_EQ(answer.finish->max_tokens(), 50);
  EXPECT_EQ(answer.finish->usage().prompt_tokens(), 3);
  EXPECT_EQ(answer.finish->usage().generated_tokens(), 50);
  EXPECT_EQ(answer.finish->usage().position(), 53);
  EXPECT_EQ(answer.finish->etag(), "");
  EXPECT_TRUE(WaitFor([&] { return fixture.server().live_streams() == 0; }));
}

TEST(Generate, TextIsTokenizedWithTheTemplateAtTheStartOnly) {
  ServerFixture fixture;
  v1::GenerateRequest request = GreedyRequest({}, 5);
  request.mutable_prompt()->set_text("Hi é");
  std::vector<int32_t> ids = testing::ByteIds("Hi é");
  Answer plain;
  request.mutable_prompt()->set_add_special_tokens(false);
  plain = Generate(fixture.generation(), request);
  EXPECT_EQ(plain.token_ids, FakeModel::Generate(ids, 5, testing::kByteVocab));
  request.mutable_prompt()->clear_add_special_tokens();
  ids.insert(ids.begin(), testing::kBosId);
  const Answer with_bos = Generate(fixture.generation(), request);
  EXPECT_EQ(with_bos.info->prompt_tokens(), static_cast<int64_t>(ids.size()));
  EXPECT_EQ(with_bos.token_ids, FakeModel::Generate(ids, 5, testing::kByteVocab));

  // In a session: the template for its first tokens, nothing after that.
  v1::CreateSessionRequest create;
  create.set_session_id("chat");
  v1::Session session;
  grpc::ClientContext context;
  ASSERT_TRUE(fixture.sessions().CreateSession(&context, create, &session).ok());
  request.set_session("sessions/chat");
  const Answer first = Generate(fixture.generation(), request);
  EXPECT_EQ(first.token_ids, with_bos.token_ids);
  EXPECT_EQ(first.info->miss_reason(), "new_session");
  EXPECT_NE(first.finish->etag(), "");
  const Answer second = Generate(fixture.generation(), request);
  EXPECT_EQ(second.info->prompt_tokens(), static_cast<int64_t>(testing::ByteIds("Hi é").size()));
  EXPECT_EQ(second.info->reused_from(), "sessions/chat");
  EXPECT_EQ(second.info->reused_tokens(), first.finish->usage().position());
  ids.insert(ids.end(), first.token_ids.begin(), first.token_ids.end());
  const std::vector<int32_t> more = testing::ByteIds("Hi é");
  ids.insert(ids.end(), more.begin(), more.end());
  EXPECT_EQ(second.token_ids, FakeModel::Generate(ids, 5, testing::kByteVocab));
  // A prompt that spells a special token is text unless it is said to be one.
  request.clear_session();
  request.mutable_prompt()->set_text("</s>");
  EXPECT_EQ(Generate(fixture.generation(), request).info->prompt_tokens(), 5);
  request.mutable_prompt()->set_parse_special(true);
  EXPECT_EQ(Generate(fixture.generation(), request).info->prompt_tokens(), 2);
}

TEST(Generate, SamplingDefaultsComeFromTheFolderAndTheRequestWins) {
  std::vector<testing::ServedModel> models = OneFake({}, {});
  models[0].loaded.defaults.do_sample = false;
  models[0].loaded.defaults.temperature = 0.8f;
  ServerFixture fixture(std::move(models));
  v1::GenerateRequest request = GreedyRequest({9}, 20);
  request.clear_sampling();
  EXPECT_EQ(Generate(fixture.generation(), request).token_ids,
            FakeModel::Generate({9}, 20, testing::kByteVocab));
  // Seeds are drawn when unset, echoed, and reproduce what they made.
  request.mutable_sampling()->set_temperature(1e30f);
  const Answer drawn = Generate(fixture.generation(), request);
  const Answer other = Generate(fixture.generation(), request);
  EXPECT_NE(drawn.info->seed(), other.info->seed());
  EXPECT_NE(drawn.token_ids, other.token_ids);
  request.mutable_sampling()->set_seed(drawn.info->seed());
  EXPECT_EQ(Generate(fixture.generation(), request).token_ids, drawn.token_ids);
}

TEST(Generate, STR_04_EveryStringIsUtf8WhateverTheTokensAre) {
  ServerFixture fixture;
  v1::GenerateRequest request = GreedyRequest({3}, 2000);
  request.mutable_sampling()->set_temperature(1e30f);  // every byte is as likely as any other
  request.mutable_sampling()->set_seed(7);
  request.mutable_output()->set_top_logprobs(3);
  const Answer answer = Generate(fixture.generation(), request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.what_is_wrong, "");
  EXPECT_EQ(answer.token_ids.size(), 2000u);
  EXPECT_TRUE(IsStrictUtf8(answer.text));
  EXPECT_FALSE(IsStrictUtf8(std::string("\xff")));
  EXPECT_THAT(answer.text, ::testing::HasSubstr("\xEF\xBF\xBD"));
  ASSERT_EQ(answer.logprobs.size(), 2000u);
  bool some_piece_is_not_utf8 = false;
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    const v1::TokenLogprob& logprob = answer.logprobs[i];
    EXPECT_EQ(logprob.token_id(), answer.token_ids[i]);
    EXPECT_EQ(logprob.top_size(), 3);
    some_piece_is_not_utf8 = some_piece_is_not_utf8 || !IsStrictUtf8(logprob.piece());
    if (logprob.token_id() < 256)
      EXPECT_EQ(logprob.piece(), std::string(1, static_cast<char>(logprob.token_id())));
  }
  EXPECT_TRUE(some_piece_is_not_utf8);
}

TEST(Generate, StopStringIsNamedAndItsTextIsNotDelivered) {
  ServerFixture fixture;
  const std::vector<int32_t> ids = FakeModel::Generate({1}, 200, testing::kByteVocab);
  // An ASCII byte that the model will say.
  size_t at = 0;
  while (at < ids.size() && !(ids[at] >= 'a' && ids[at] <= 'z')) ++at;
  ASSERT_LT(at, ids.size());
  v1::GenerateRequest request = GreedyRequest({1}, 200);
  request.mutable_stop()->add_strings("never said, for it is too long");
  request.mutable_stop()->add_strings(std::string(1, static_cast<char>(ids[at])));
  const Answer answer = Generate(fixture.generation(), request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.finish->stop_string(), std::string(1, static_cast<char>(ids[at])));
  EXPECT_EQ(answer.text.find(static_cast<char>(ids[at])), std::string::npos);
  EXPECT_EQ(answer.token_ids.size(), answer.finish->usage().generated_tokens());
}

TEST(Generate, TimeLimitIsANormalFinish) {
  ServerFixture fixture(OneFake({.step_time = absl::Milliseconds(2)}, {}));
  v1::GenerateRequest request = GreedyRequest({1}, 1'000'000);
  request.mutable_stop()->mutable_max_time()->set_nanos(50'000'000);
  const Answer answer = Generate(fixture.generation(), request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.finish->time_limit().nanos(), 50'000'000);
  EXPECT_EQ(answer.what_is_wrong, "");
}

TEST(Generate, SCH_08_ADeadlineIsAnErrorInTheLineAndMidway) {
  std::shared_ptr<FakeModel> model;
  ServerFixture fixture(OneFake({.step_time = absl::Milliseconds(2)}, {.slots = 1}, &model));
  grpc::ClientContext running_context;
  auto running = fixture.generation().Generate(&running_context, GreedyRequest({1}, 1'000'000));
  v1::GenerateResponse message;
  ASSERT_TRUE(running->Read(&message));
  grpc::ClientContext waiting_context;
  waiting_context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(100)));
  const Answer waiting = Generate(fixture.generation(), GreedyRequest({1}, 10), &waiting_context);
  EXPECT_EQ(waiting.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(waiting.messages.empty());
  running_context.TryCancel();
  EXPECT_EQ(running->Finish().error_code(), grpc::StatusCode::CANCELLED);
  grpc::ClientContext midway_context;
  midway_context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200)));
  const Answer midway = Generate(fixture.generation(), GreedyRequest({1}, 1'000'000), &midway_context);
  EXPECT_EQ(midway.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(midway.finish.has_value());
  EXPECT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
}

TEST(Generate, RPC_04_CancelsAtAnyMomentEndEveryStreamOnce) {
  // Steps sleep, so that the engine leaves the processor to the threads that race.
  ServerFixture fixture(OneFake({.step_time = absl::Microseconds(200)}, {.slots = 16, .max_waiting = 64}));
  constexpr int kThreads = 4;
  constexpr int kStreams = 250;
  std::atomic<int> odd{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      auto stub = v1::Generation::NewStub(fixture.NewChannel());
      for (int i = 0; i < kStreams; ++i) {
        grpc::ClientContext context;
        v1::GenerateRequest request = GreedyRequest({t, i % 200}, 1'000'000);
        auto reader = stub->Generate(&context, request);
        v1::GenerateResponse message;
        const unsigned reads = random() % 4;
        for (unsigned r = 0; r < reads; ++r)
          if (!reader->Read(&message)) break;
        absl::SleepFor(absl::Microseconds(random() % 1500));
        context.TryCancel();
        while (reader->Read(&message)) {
        }
        if (reader->Finish().error_code() != grpc::StatusCode::CANCELLED) ++odd;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(odd, 0);
  EXPECT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
  EXPECT_EQ(fixture.server().live_streams(), 0);
  const Answer after = Generate(fixture.generation(), GreedyRequest({1}, 10));
  EXPECT_EQ(after.token_ids, FakeModel::Generate({1}, 10, testing::kByteVocab));
}

// Messages are large, so that the transport's buffers fill soon.
v1::GenerateRequest WideRequest() {
  v1::GenerateRequest request = GreedyRequest({1}, 10'000'000);
  request.mutable_output()->set_top_logprobs(20);
  return request;
}

TEST(Generate, AReaderThatComesBackIsToldThatItWasTooSlow) {
  FixtureOptions options;
  // Long enough that only the full socket makes tokens wait for it, however busy the machine is.
  options.engine.reader_stall = absl::Seconds(2);
  options.server.stuck_write = absl::Seconds(60);
  ServerFixture fixture(OneFake({}, {.slots = 2}), options);
  grpc::ClientContext context;
  auto reader = fixture.generation().Generate(&context, WideRequest());
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  // The turn ends and its slot is free while the call is still stuck.
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Idle(); }));
  EXPECT_EQ(fixture.server().live_streams(), 1);
  int64_t next = -1;
  while (reader->Read(&message)) {
    ASSERT_TRUE(message.has_delta());
    if (next >= 0) EXPECT_EQ(message.delta().position(), next);
    next = message.delta().position() + message.delta().token_ids_size();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(testing::ReasonOf(status), "CLIENT_TOO_SLOW");
  EXPECT_EQ(testing::DetailOf<google::rpc::ErrorInfo>(status)->metadata().at("position"),
            std::to_string(next));
}

TEST(Generate, AReaderThatNeverComesBackIsCutOff) {
  FixtureOptions options;
  options.engine.reader_stall = absl::Milliseconds(100);
  options.server.stuck_write = absl::Milliseconds(400);
  ServerFixture fixture(OneFake({}, {.slots = 2}), options);
  grpc::ClientContext context;
  auto reader = fixture.generation().Generate(&context, WideRequest());
  ASSERT_TRUE(WaitFor([&] { return fixture.server().live_streams() == 1; }));
  // The client never reads; its call ends all the same, and so does everything that belongs to it.
  EXPECT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
  const Answer other = Generate(fixture.generation(), GreedyRequest({1}, 10));
  EXPECT_TRUE(other.status.ok());
  context.TryCancel();
  reader->Finish();
}

TEST(Generate, AFullLineIsRefusedAtOnce) {
  ServerFixture fixture(OneFake({.step_time = absl::Milliseconds(1)}, {.slots = 1, .max_waiting = 1}));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(fixture.generation().Generate(contexts.back().get(), GreedyRequest({1}, 1'000'000)));
    ASSERT_TRUE(WaitFor([&] {
      const RunnerStats stats = fixture.engine().Stats()[0];
      return stats.running + stats.waiting == i + 1;
    }));
  }
  const absl::Time begin = absl::Now();
  const Answer refused = Generate(fixture.generation(), GreedyRequest({1}, 1));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(testing::ReasonOf(refused.status), "QUEUE_FULL");
  EXPECT_TRUE(testing::DetailOf<google::rpc::QuotaFailure>(refused.status).has_value());
  EXPECT_TRUE(testing::DetailOf<google::rpc::RetryInfo>(refused.status).has_value());
  for (int i = 0; i < 2; ++i) {
    contexts[i]->TryCancel();
    readers[i]->Finish();
  }
  // All places are free again.
  EXPECT_TRUE(WaitFor([&] { return Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok(); }));
}

}  // namespace
}  // namespace weir
