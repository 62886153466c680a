// The parts of the frontend that need no server: names, executor, and the splitting of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <set>

#include "runtime/base/error.h"
#include "server/frontend/executor.h"
#include "server/frontend/names.h"
#include "server/frontend/turn_messages.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

TEST(Names, SES_19_OnlyPlainIdsAreNames) {
  EXPECT_EQ(SessionIdOf("sessions/a"), "a");
  EXPECT_EQ(SessionIdOf("sessions/A0._-z"), "A0._-z");
  EXPECT_EQ(ModelIdOf("models/tales.v1"), "tales.v1");
  EXPECT_TRUE(IsValidId(std::string(63, 'a')));
  for (const std::string name :
       {"", "a", "sessions/", "sessions/../x", "sessions/.", "sessions/-a", "sessions/a/b", "sessions/a b",
        "models/a", "/sessions/a", "sessions/\xC0\xAE"})
    EXPECT_FALSE(SessionIdOf(name).has_value()) << name;
  EXPECT_FALSE(IsValidId(std::string(64, 'a')));
  EXPECT_FALSE(IsValidId(std::string("a\0b", 3)));
}

TEST(Names, AForkIsRoutedAsItsParentIs) {
  EXPECT_THAT(RandomForkId("talk"), ::testing::MatchesRegex("talk\\.[0-9a-f]{32}"));
  EXPECT_THAT(RandomForkId("talk.one.two"), ::testing::MatchesRegex("talk\\.[0-9a-f]{32}"));
  EXPECT_NE(RandomForkId("talk"), RandomForkId("talk"));
  const std::string longest(46, 'a');
  EXPECT_THAT(RandomForkId(longest), ::testing::MatchesRegex("a+\\.[0-9a-f]{16}"));
  EXPECT_TRUE(IsValidId(RandomForkId(longest)));
  EXPECT_EQ(RandomForkId(longest + "a").size(), 32u) << "too little room for random bits";
  EXPECT_EQ(RandomForkId(std::string(63, 'a')).size(), 32u);
  EXPECT_EQ(RandomForkId("").size(), 32u);
}

TEST(Names, RandomIdsHave128BitsAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = RandomId();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_TRUE(IsValidId(id));
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000u);
}

TEST(Executor, RefusesWhatDoesNotFitTheLineAndRunsTheRest) {
  Executor executor({.threads = 1, .max_tasks = 3, .max_bytes = 100});
  std::promise<void> started, release;
  std::atomic<int> ran{0};
  ASSERT_TRUE(executor
                  .Post(1,
                        [&] {
                          started.set_value();
                          release.get_future().wait();
                          ++ran;
                        })
                  .ok());
  started.get_future().wait();
  const auto count = [&] { ++ran; };
  EXPECT_TRUE(executor.Post(1000, count).ok());                              // alone in line: any size
  EXPECT_EQ(GetErrorDetails(executor.Post(1, count)).reason, "QUEUE_FULL");  // of bytes
  release.set_value();
  EXPECT_TRUE(testing::WaitFor([&] { return ran == 2; }));
  std::promise<void> started_again, release_again;
  ASSERT_TRUE(executor
                  .Post(0,
                        [&] {
                          started_again.set_value();
                          release_again.get_future().wait();
                        })
                  .ok());
  started_again.get_future().wait();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(executor.Post(1, count).ok());
  const absl::Status full = executor.Post(1, count);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(GetErrorDetails(full).retry_after, absl::ZeroDuration());
  release_again.set_value();
  executor.Stop();
  EXPECT_EQ(ran, 5);  // what waited has run
  EXPECT_EQ(executor.Post(1, count).code(), absl::StatusCode::kUnavailable);
}

TEST(TurnMessages, AHugeChunkIsSplitBelowOneMebibyteAndLosesNothing) {
  const testing::ServedModel served = testing::MakeServedFake("fake");
  StartedTurn turn;
  turn.model = &served.loaded;
  TurnMessages messages(&turn);
  StreamChunk chunk;
  chunk.info = TurnInfo{3, 0};
  chunk.position = 3;
  chunk.top_count = kMaxTopLogprobs;
  std::string text;
  for (int i = 0; i < 20'000; ++i) {
    chunk.token_ids.push_back(i % 256);
    chunk.logprobs.push_back(-1.0f);
    for (int k = 0; k < kMaxTopLogprobs; ++k) chunk.top_logprobs.emplace_back(k < 5 ? k : -1, -2.0f);
    text += "ab😀…é";
  }
  for (int i = 0; i < 100'000; ++i) text += "😀";
  chunk.text = text;
  chunk.finish = Finish{};
  chunk.finish->position = 20'003;
  std::deque<v1::GenerateResponse> out;
  messages.Add(chunk, &out);
  ASSERT_GT(out.size(), 4u);
  EXPECT_TRUE(out.front().has_prompt_info());
  EXPECT_TRUE(out.back().has_finish());
  int64_t position = 3;
  std::string joined;
  for (size_t i = 1; i + 1 < out.size(); ++i) {
    EXPECT_LT(out[i].ByteSizeLong(), size_t{1} << 20);
    const v1::Delta& delta = out[i].delta();
    EXPECT_EQ(delta.position(), position);
    EXPECT_EQ(delta.logprobs_size(), delta.token_ids_size());
    for (int k = 0; k < delta.token_ids_size(); ++k) ASSERT_EQ(delta.token_ids(k), (position - 3 + k) % 256);
    if (delta.logprobs_size() > 0) EXPECT_EQ(delta.logprobs(0).top_size(), 5);
    position += delta.token_ids_size();
    joined += delta.text();
    v1::GenerateResponse parsed;  // a string that is not UTF-8 does not parse
    EXPECT_TRUE(parsed.ParseFromString(out[i].SerializeAsString()));
  }
  EXPECT_EQ(position, 20'003);
  EXPECT_EQ(joined, text);
}

TEST(TurnMessages, ManyTokensOfOneChunkAreOneMessage) {
  const testing::ServedModel served = testing::MakeServedFake("fake");
  StartedTurn turn;
  turn.model = &served.loaded;
  turn.max_tokens = 100;
  TurnMessages messages(&turn);
  StreamChunk chunk;
  chunk.position = 7;
  for (int i = 0; i < 100; ++i) chunk.token_ids.push_back(i);
  chunk.text = "text";
  std::deque<v1::GenerateResponse> out;
  messages.Add(chunk, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].delta().token_ids_size(), 100);
  // Held text that comes with the end is a delta without tokens, behind them.
  chunk.Clear();
  chunk.text = "held";
  chunk.finish = Finish{};
  messages.Add(chunk, &out);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[1].delta().position(), 107);
  EXPECT_EQ(out[1].delta().text(), "held");
  EXPECT_EQ(out[2].finish().max_tokens(), 100);
}

}  // namespace
}  // namespace weir
