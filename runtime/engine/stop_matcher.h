// StopMatcher: finds the first of several stop strings in a byte stream, over any chunking of it (Aho and
// Corasick 1975).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 256;
// What can be held back: a stop string but for its last byte.
inline constexpr size_t kMaxHeldBytes = kMaxStopBytes - 1;

// Immutable after Create(); built once per request. A default one has no stops, never matches and holds
// nothing.
class StopMatcher {
 public:
  struct Result {
    size_t emit = 0;   // bytes of held + input that are safe to deliver; a match starts right after them
    int matched = -1;  // index of the stop that fired, the lower one of two equal stops
    size_t end = 0;    // bytes of held + input up to the end of the match; all of them without one
  };

  StopMatcher() = default;
  // Refuses more than kMaxStops strings, empty ones, and ones over kMaxStopBytes bytes.
  static absl::StatusOr<StopMatcher> Create(std::span<const std::string> stops);

  bool empty() const { return nodes_.size() <= 1; }

  // `held`: what the last Scan of this stream left unsafe (from `emit` on), at most kMaxHeldBytes bytes; the
  // matcher keeps no other state, so a stream continues after a restore, or under other stops. The match that
  // completes first wins; of several that complete on one byte the longest. Without a match at most
  // kMaxHeldBytes bytes stay back: the longest end of the stream that begins some stop. Never allocates.
  Result Scan(std::string_view held, std::string_view input) const;

 private:
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;
    int16_t match = -1;  // longest stop that ends here
    uint16_t fail = 0;
    uint16_t first_child = 0;  // 0: none, as the root is nobody's child
    uint16_t next_sibling = 0;
  };

  uint16_t Child(uint16_t node, uint8_t byte) const;
  uint16_t Next(uint16_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::vector<size_t> stop_sizes_;
  std::array<uint16_t, 256> root_ = {};  // children of the root
};

}  // namespace weir
