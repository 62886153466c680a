#include "client/loadtest/state_shape.h"

namespace weir {

std::optional<int64_t> BreakEvenPosition(const StateShape& fixed, const StateShape& paged) {
  if (fixed.paged || paged.BytesPerToken() <= 0) return std::nullopt;
  const int64_t missing = fixed.fixed_bytes - paged.fixed_bytes;
  if (missing <= 0) return 0;
  const int64_t blocks = (missing + paged.block_bytes - 1) / paged.block_bytes;
  return (blocks - 1) * paged.block_tokens + 1;
}

}  // namespace weir
