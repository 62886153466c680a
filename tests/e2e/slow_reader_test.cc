// RPC-01: clients that do not read harm nobody, and the memory they cost is bounded.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kClients = 4;  // the transport's windows take minutes to fill there
#else
constexpr int kClients = 20;
#endif

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(SlowReader, RPC_01_TwentyClientsThatDoNotReadHarmNobody) {
  FixtureOptions options;
  options.engine.max_tokens_waiting = 1000;
  std::vector<ServedModel> models;
  models.push_back(MakeServedFake("fake", {}, {.slots = 32}));
  ServerFixture fixture(std::move(models), options);

  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<v1::Generation::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  const std::vector<int32_t> prompt = ByteIds("go");
  v1::GenerateRequest endless = GreedyRequest(prompt, 100'000'000);
  endless.mutable_stop()->set_ignore_eos(true);
  endless.mutable_output()->set_top_logprobs(20);  // large messages fill the transport's windows soon
  [[maybe_unused]] const int64_t before = ResidentBytes();
  for (int i = 0; i < kClients; ++i) {
    channels.push_back(fixture.NewChannel());
    stubs.push_back(v1::Generation::NewStub(channels.back()));
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stubs.back()->Generate(contexts.back().get(), endless));
    v1::GenerateResponse first;
    ASSERT_TRUE(readers.back()->Read(&first));
  }
  // A client that reads gets all that is its own meanwhile.
  v1::GenerateRequest normal = GreedyRequest(prompt, 3000);
  normal.mutable_stop()->set_ignore_eos(true);
  const Answer answer = Generate(fixture.generation(), normal);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.token_ids, FakeModel::Generate(prompt, 3000, kByteVocab));

  // The others pause when the transport's windows are full and what waits for them is at its cap, and end
  // when they have stood still for too long.
  EXPECT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].running == 0; }, absl::Seconds(120)));
  EXPECT_EQ(fixture.engine().Stats()[0].slots_free, 32);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Both ends live in this process, so the client's share of the buffers counts too.
  EXPECT_LT(ResidentBytes() - before, kClients * (int64_t{10} << 20));
#endif
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) reader->Finish();
}

}  // namespace
}  // namespace weir::testing
