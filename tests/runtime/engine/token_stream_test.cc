#include "runtime/engine/token_stream.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// A producer that looks at full() before each token, as the engine does, against a reader that drains at
// once. So many tokens, or as many as go over in two seconds: where other processes have the processors, each
// of them waits.
TEST(TokenStream, NeverHoldsMoreThanItsCap) {
  constexpr int kTokens = 200'000;
  for (const int64_t cap : {1, 3}) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    TokenStream stream(
        0, cap, [] {}, [] {});
    std::atomic<int> pushed = 0;
    std::atomic<bool> over = false;
    std::thread producer([&] {
      while (pushed < kTokens && std::chrono::steady_clock::now() < end) {
        if (stream.full()) {
          std::this_thread::yield();
          continue;
        }
        const int i = pushed;
        stream.Push({.id = i, .position = i, .text = "x"}, absl::Now());
        ++pushed;
      }
      over = true;
    });
    StreamChunk chunk;
    int32_t next = 0;
    int64_t most = 0;
    while (!over || next < pushed) {
      stream.Drain(&chunk);
      if (chunk.empty()) std::this_thread::yield();
      most = std::max(most, static_cast<int64_t>(chunk.token_ids.size()));
      for (const int32_t id : chunk.token_ids) {
        EXPECT_EQ(id, next);
        ++next;
      }
    }
    producer.join();
    EXPECT_GT(next, 0);
    EXPECT_LE(most, cap);
  }
}

}  // namespace
}  // namespace weir
