// SessionTotals: sums over one model's sessions, kept up to date so that nobody has to walk over all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

// Engine thread only.
class SessionTotals {
 public:
  struct Counted {
    int64_t position = 0;
    int64_t state_bytes = 0;
  };

  // Replaces what was counted for the session in `slot`.
  void Count(int slot, const Counted& now) {
    const auto index = static_cast<size_t>(slot);
    if (index >= sessions_.size()) sessions_.resize(index + 1);
    Counted& counted = sessions_[index];
    sum_.position += now.position - counted.position;
    sum_.state_bytes += now.state_bytes - counted.state_bytes;
    if (counted.position == max_position_ && now.position < counted.position) max_is_known_ = false;
    max_position_ = std::max(max_position_, now.position);
    counted = now;
  }
  void Forget(int slot) { Count(slot, {}); }

  Counted of(int slot) const {
    return static_cast<size_t>(slot) < sessions_.size() ? sessions_[static_cast<size_t>(slot)] : Counted();
  }
  const Counted& sum() const { return sum_; }
  // Looks at all of them only when the furthest one has gone.
  int64_t max_position() {
    if (!max_is_known_) {
      max_position_ = 0;
      for (const Counted& counted : sessions_) max_position_ = std::max(max_position_, counted.position);
      max_is_known_ = true;
    }
    return max_position_;
  }

 private:
  std::vector<Counted> sessions_;  // by slot
  Counted sum_;
  int64_t max_position_ = 0;
  bool max_is_known_ = true;
};

}  // namespace weir
