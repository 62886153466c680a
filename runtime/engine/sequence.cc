#include "runtime/engine/sequence.h"

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {
namespace {

void EraseFed(Sequence* sequence) {
  sequence->pending.erase(sequence->pending.begin(),
                          sequence->pending.begin() + static_cast<int64_t>(sequence->pending_begin));
  sequence->pending_begin = 0;
}

}  // namespace

void Sequence::AppendPrompt(std::span<const int32_t> tokens) {
  EraseFed(this);
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

SequenceMark Sequence::Mark() const {
  return {position(), static_cast<size_t>(num_pending()), history, text, has_text};
}

void Sequence::DropUnfedPrompt(const SequenceMark& before, FunctionRef<bool(int32_t)> is_special) {
  const bool state_is_past = fed > 0 && fed >= before.position;
  const int64_t keep = std::min(position(), state_is_past ? fed + 1 : before.position);
  if (keep == position()) return;
  pending.resize(pending_begin + static_cast<size_t>(keep - fed));
  history = before.history;
  has_text = before.has_text;
  if (keep == before.position) text = before.text;
  // The prompt follows what was pending before it; fed tokens are still in front while some are not.
  for (size_t i = before.num_pending; i < pending.size(); ++i) {
    history.Add(pending[i], /*is_output=*/false);
    has_text = has_text || !is_special(pending[i]);
  }
}

void Sequence::Compact() {
  EraseFed(this);
  if (pending.capacity() > 4 * kChunkTokens) pending.shrink_to_fit();
}

std::string Session::etag() const { return fmt::format("{}-{}", sequence.position(), turns); }

}  // namespace weir
