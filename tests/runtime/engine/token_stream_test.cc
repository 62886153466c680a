#include "runtime/engine/token_stream.h"

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// A producer that looks at full() before each token, as the engine does, against a reader that drains at
// once.
TEST(TokenStream, NeverHoldsMoreThanItsCap) {
  constexpr int kTokens = 200'000;
  for (const int64_t cap : {1, 3}) {
    TokenStream stream(
        0, cap, [] {}, [] {});
    std::thread producer([&] {
      for (int i = 0; i < kTokens;) {
        if (stream.full()) {
          std::this_thread::yield();
          continue;
        }
        stream.Push({.id = i, .position = i, .text = "x"}, absl::Now());
        ++i;
      }
    });
    StreamChunk chunk;
    int32_t next = 0;
    int64_t most = 0;
    while (next < kTokens) {
      stream.Drain(&chunk);
      if (chunk.empty()) std::this_thread::yield();
      most = std::max(most, static_cast<int64_t>(chunk.token_ids.size()));
      for (const int32_t id : chunk.token_ids) {
        EXPECT_EQ(id, next);
        ++next;
      }
    }
    producer.join();
    EXPECT_LE(most, cap);
  }
}

}  // namespace
}  // namespace weir
