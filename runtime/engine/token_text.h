// TokenText: how the engine turns ids into bytes, for stop strings and streamed text.
#pragma once

#include <cstdint>
#include <string_view>

namespace weir {

// Immutable; called on the engine thread, so it neither allocates nor blocks.
class TokenText {
 public:
  virtual ~TokenText() = default;
  // The bytes that `id` adds; `at_start`: nothing but special tokens came before it in the sequence.
  virtual std::string_view Piece(int32_t id, bool at_start) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // Ids at or above this have no token and are never drawn.
  virtual int32_t size() const = 0;
};

}  // namespace weir
