#include "runtime/engine/sequence.h"

#include "fmt/format.h"
#include "runtime/base/check.h"

namespace weir {

void Sequence::AppendPrompt(std::span<const int32_t> tokens) {
  pending.erase(pending.begin(), pending.begin() + static_cast<int64_t>(pending_begin));
  pending_begin = 0;
  pending.insert(pending.end(), tokens.begin(), tokens.end());
  for (const int32_t id : tokens) history.Add(id, /*is_output=*/false);
}

void Sequence::MarkFed(int64_t num_tokens) {
  WEIR_CHECK(num_tokens <= num_pending());
  fed += num_tokens;
  pending_begin += static_cast<size_t>(num_tokens);
  if (pending_begin == pending.size()) {
    pending.clear();
    pending_begin = 0;
  }
}

void Sequence::AppendGenerated(int32_t token) {
  pending.push_back(token);
  history.Add(token, /*is_output=*/true);
}

void Sequence::DropUnfedPrompt() {
  if (num_pending() > 1) pending.resize(pending_begin + 1);
}

std::string Session::etag() const { return fmt::format("{}-{}", sequence.position(), turns); }

}  // namespace weir
