// From token bytes to text that may be delivered: stop strings are cut, characters are whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/engine/stop_matcher.h"

namespace weir {

// Bytes to valid UTF-8, incrementally. An incomplete character at the end (at most 3 bytes) is held back;
// bytes that no continuation can make valid become U+FFFD, one for each maximal subpart (Unicode 15,
// section 3.9; the same as the WHATWG decoder).
class Utf8Stream {
 public:
  Utf8Stream() = default;
  // `tail`: what tail() returned; an invalid one is dropped.
  explicit Utf8Stream(std::string_view tail);

  // Appends whole characters to *out: at most 3 bytes for each byte of tail() and input.
  void Append(std::string_view bytes, std::string* out);
  // The incomplete character held back.
  std::string_view tail() const { return {tail_, tail_size_}; }
  void Reset() { tail_size_ = 0; }

  // True for a non-empty proper prefix of some character's encoding.
  static bool IsIncompleteCharacter(std::string_view bytes);

 private:
  char tail_[3] = {};
  uint8_t tail_size_ = 0;
};

// What a TextStream holds back. Part of the session snapshot: no padding, no pointer.
struct TextState {
  uint8_t held_size = 0;  // a possible stop string
  uint8_t tail_size = 0;  // an incomplete character; comes before the held bytes in the stream
  char held[kMaxHeldBytes] = {};
  char tail[3] = {};

  // False for bytes that no TextStream can have made (a damaged import).
  bool IsValid() const;
};
static_assert(std::is_trivially_copyable_v<TextState> && sizeof(TextState) == 260);

// Owner: one generation. Never allocates but for growth of the caller's strings.
class TextStream {
 public:
  // `state`: where an earlier stream of the same text stopped; its stops may have been others. WEIR_CHECKs
  // state.IsValid().
  explicit TextStream(StopMatcher stops = {}, const TextState& state = {});

  // Takes the bytes of one token and appends the text that became safe. Returns the index of the stop that
  // fired, or -1. After a stop the text ends right before it, and only Finish() and Reset() may be called.
  int Append(std::string_view piece, std::string* text_out);

  // End of the text: appends held bytes that turned out to be no stop; an incomplete character is not text
  // and goes to *raw_tail only (which may be null). Unless a stop fired the incomplete character stays in
  // state(), so that a generation which continues the same text completes it; Reset() forgets it.
  void Finish(std::string* text_out, std::string* raw_tail);

  void Reset();

  // Bytes after the last one that the snapshot covers are zero, so equal states are equal bytes.
  TextState state() const;

 private:
  StopMatcher stops_;
  Utf8Stream utf8_;
  uint8_t held_size_ = 0;
  bool stopped_ = false;
  char held_[kMaxHeldBytes] = {};
};

}  // namespace weir
