// Sequence: all that one sequence needs to go on. Fork, snapshot and restore carry the whole of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/function_ref.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/text_stream.h"
#include "runtime/engine/turn.h"
#include "runtime/state/kv_pool.h"
#include "runtime/state/state_arena.h"

namespace weir {

struct SnapshotImage;

// What a sequence was before a prompt joined it.
struct SequenceMark {
  int64_t position = 0;
  size_t num_pending = 0;
  TokenHistory history;
  TextState text;
  bool has_text = false;
};

// Engine thread only. Between turns at most kChunkTokens tokens are pending, and at least one of a sequence
// that can go on by itself: the last token is fed by the step that needs what follows it.
struct Sequence {
  StateSlot slot;
  BlockTable blocks;
  int64_t fed = 0;               // tokens that the state has taken in
  std::vector<int32_t> pending;  // tokens that wait; [pending_begin, size) are still to be fed
  size_t pending_begin = 0;
  TokenHistory history;   // recent tokens, the pending ones included
  TextState text;         // bytes that no client has seen yet
  bool has_text = false;  // a token that is not special has been seen
  bool corrupt = false;   // the state gave non-finite logits; only Rollback and Delete are left

  int64_t num_pending() const { return static_cast<int64_t>(pending.size() - pending_begin); }
  int64_t position() const { return fed + num_pending(); }
  std::span<const int32_t> waiting() const { return std::span(pending).subspan(pending_begin); }

  void AppendPrompt(std::span<const int32_t> tokens);
  // The tokens at the front went through the model.
  void MarkFed(int64_t num_tokens);
  void AppendGenerated(int32_t token);

  SequenceMark Mark() const;
  // Nothing was generated since `before`, and one prompt joined. Forgets its tokens that were never fed, but
  // for the one that keeps "one token pending" true; what was there before stays.
  void DropUnfedPrompt(const SequenceMark& before, FunctionRef<bool(int32_t)> is_special);
  // Between turns: gives back the memory of tokens that were fed.
  void Compact();
};

// A sequence with a name, an owner and a time to live.
struct Session {
  std::string id;
  std::string owner;
  Sequence sequence;
  bool busy = false;  // a turn runs or waits, or its state is being copied: nobody else may touch it
  uint64_t turns = 0;
  absl::Time create_time;
  absl::Time expire_time;
  absl::Duration ttl;
  struct Snapshot {
    absl::Time create_time;
    // A rollback that is under way keeps it although it is deleted meanwhile.
    std::shared_ptr<const SnapshotImage> image;
  };
  std::map<std::string, Snapshot, std::less<>> snapshots;

  std::string etag() const;
};

}  // namespace weir
