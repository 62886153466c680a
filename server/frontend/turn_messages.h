// TurnMessages: what a stream hands over, in the words of the contract.
#pragma once

#include <cstdint>
#include <deque>

#include "runtime/engine/token_stream.h"
#include "server/frontend/turn_client.h"
#include "weir/v1/generation.pb.h"

namespace weir {

// Owner: one call; used by one thread at a time.
class TurnMessages {
 public:
  // No message is larger than about this, whatever waits; well below the 1 MiB that the contract promises.
  static constexpr size_t kTargetBytes = size_t{512} << 10;

  // `turn` outlives this.
  explicit TurnMessages(const StartedTurn* turn) : turn_(turn) {}

  // Appends the messages that `chunk` makes: one delta unless it is too large. An error makes none.
  void Add(const StreamChunk& chunk, std::deque<v1::GenerateResponse>* out);

 private:
  v1::GenerateResponse PromptInfoMessage(const TurnInfo& info) const;
  v1::GenerateResponse FinishMessage(const Finish& finish) const;
  void AddDeltas(const StreamChunk& chunk, std::deque<v1::GenerateResponse>* out);
  void AddLogprobs(const StreamChunk& chunk, size_t token, v1::Delta* delta) const;

  const StartedTurn* const turn_;
  int64_t next_position_ = 0;
};

// The longest beginning of `text` of at most `limit` bytes that ends between two characters. text: UTF-8.
std::string_view WholeCharacters(std::string_view text, size_t limit);

}  // namespace weir
