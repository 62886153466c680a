#include "runtime/engine/text_stream.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace weir {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Unit {
  size_t size = 0;        // bytes of a whole character, or of a maximal subpart of one
  bool complete = false;  // a whole character
  bool open = false;      // the bytes ended before it was decided
};

// The first unit of `bytes`, which are not empty (Unicode 15, table 3-7).
Unit FirstUnit(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone tells overlong forms, surrogates and values past U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, false, true};
    const bool fits = i == 1 ? low <= at(i) && at(i) <= high : 0x80 <= at(i) && at(i) <= 0xBF;
    if (!fits) return {i, false, false};
  }
  return {size, true, false};
}

}  // namespace

bool Utf8Stream::IsIncompleteCharacter(std::string_view bytes) {
  if (bytes.empty()) return false;
  const Unit unit = FirstUnit(bytes);
  return unit.open && unit.size == bytes.size();
}

Utf8Stream::Utf8Stream(std::string_view tail) {
  if (!IsIncompleteCharacter(tail)) return;
  tail_size_ = static_cast<uint8_t>(tail.size());
  std::memcpy(tail_, tail.data(), tail.size());
}

void Utf8Stream::Append(std::string_view bytes, std::string* out) {
  while (tail_size_ > 0 && !bytes.empty()) {
    char joined[4];
    std::memcpy(joined, tail_, tail_size_);
    joined[tail_size_] = bytes[0];
    const Unit unit = FirstUnit({joined, size_t{tail_size_} + 1});
    if (!unit.complete && !unit.open) {
      // The new byte does not belong to the tail and starts a unit of its own.
      out->append(kReplacement);
      tail_size_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    if (unit.complete) {
      out->append(joined, unit.size);
      tail_size_ = 0;
    } else {
      tail_[tail_size_++] = joined[unit.size - 1];
    }
  }
  while (!bytes.empty()) {
    size_t whole = 0;
    Unit unit;
    while (whole < bytes.size()) {
      unit = FirstUnit(bytes.substr(whole));
      if (!unit.complete) break;
      whole += unit.size;
    }
    out->append(bytes.substr(0, whole));
    bytes.remove_prefix(whole);
    if (bytes.empty()) return;
    if (unit.open) {
      tail_size_ = static_cast<uint8_t>(unit.size);
      std::memcpy(tail_, bytes.data(), unit.size);
      return;
    }
    out->append(kReplacement);
    bytes.remove_prefix(unit.size);
  }
}

bool TextState::IsValid() const {
  if (tail_size > sizeof(tail)) return false;
  return tail_size == 0 || Utf8Stream::IsIncompleteCharacter({tail, tail_size});
}

TextStream::TextStream(StopMatcher stops, const TextState& state)
    : stops_(std::move(stops)), utf8_({state.tail, state.tail_size}), held_size_(state.held_size) {
  WEIR_CHECK(state.IsValid());
  std::memcpy(held_, state.held, held_size_);
}

int TextStream::Append(std::string_view piece, std::string* text_out) {
  WEIR_CHECK(!stopped_);
  const std::string_view held{held_, held_size_};
  const StopMatcher::Result scan = stops_.Scan(held, piece);
  const size_t held_emitted = std::min(scan.emit, held.size());
  utf8_.Append(held.substr(0, held_emitted), text_out);
  utf8_.Append(piece.substr(0, scan.emit - held_emitted), text_out);
  if (scan.matched >= 0) {
    stopped_ = true;
    held_size_ = 0;
    return scan.matched;
  }
  const size_t kept = held.size() - held_emitted;
  const std::string_view added = piece.substr(scan.emit - held_emitted);
  WEIR_CHECK(kept + added.size() <= kMaxHeldBytes);
  std::memmove(held_, held_ + held_emitted, kept);
  added.copy(held_ + kept, added.size());
  held_size_ = static_cast<uint8_t>(kept + added.size());
  return -1;
}

void TextStream::Finish(std::string* text_out, std::string* raw_tail) {
  utf8_.Append({held_, held_size_}, text_out);
  held_size_ = 0;
  if (raw_tail != nullptr) raw_tail->append(utf8_.tail());
  if (stopped_) utf8_.Reset();
}

void TextStream::Reset() {
  utf8_.Reset();
  held_size_ = 0;
  stopped_ = false;
}

TextState TextStream::state() const {
  TextState state;
  state.held_size = held_size_;
  std::memcpy(state.held, held_, held_size_);
  state.tail_size = static_cast<uint8_t>(utf8_.tail().size());
  std::memcpy(state.tail, utf8_.tail().data(), state.tail_size);
  return state;
}

}  // namespace weir
