// StateShape: what a session costs at each position, from the shapes of the model's state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weir {

struct StateShape {
  bool paged = false;
  int64_t fixed_bytes = 0;   // at every position; of a paged model mostly 0
  int64_t block_bytes = 0;   // paged: of one block, all layers
  int64_t block_tokens = 0;  // paged: that one block holds

  int64_t BytesAt(int64_t position) const {
    if (!paged || block_tokens <= 0) return fixed_bytes;
    return fixed_bytes + (position + block_tokens - 1) / block_tokens * block_bytes;
  }
  // That each further token adds, the rounding to whole blocks aside.
  double BytesPerToken() const {
    return !paged || block_tokens <= 0 ? 0
                                       : static_cast<double>(block_bytes) / static_cast<double>(block_tokens);
  }
};

// One model's constant state against another's growing one.
struct BreakEven {
  std::string against;  // the paged model
  int64_t tokens = 0;   // the first position at which its session holds at least as many bytes
};

// The first position at which a session of `paged` holds at least as many bytes as one of `fixed`: before it,
// the constant state is the larger one. Nothing unless one is fixed and the other grows.
std::optional<int64_t> BreakEvenPosition(const StateShape& fixed, const StateShape& paged);

}  // namespace weir
