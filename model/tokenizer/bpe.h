// Bpe: the byte pair encoding model of a tokenizer.json (Sennrich et al., 2016, arXiv:1508.07909).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/tokenizer/json_fields.h"

namespace weir {

using TokenIds = absl::flat_hash_map<std::string, int32_t>;

inline std::optional<int32_t> FindToken(const TokenIds& ids, std::string_view token) {
  const auto it = ids.find(absl::string_view(token.data(), token.size()));
  if (it == ids.end()) return std::nullopt;
  return it->second;
}

// Working memory of one Encode call; reused from word to word.
struct BpeScratch {
  struct Symbol {
    int32_t id;  // -1: merged away
    int32_t previous;
    int32_t next;  // -1: last
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> sorted;  // rank << 32 | position
  std::vector<uint64_t> heap;
  uint64_t operations = 0;  // pairs looked up and queue entries taken, over all words
  uint64_t next_cancel_check = 0;
  const std::atomic<bool>* cancelled = nullptr;
  bool allow_special = false;  // the model may produce special tokens' ids
};

// Immutable, usable from any thread.
class Bpe {
 public:
  // Reads "model". A merge whose parts or result are not in the vocabulary is an error that names its index.
  static absl::StatusOr<std::unique_ptr<Bpe>> FromJson(const Json& model);

  // Ids that text must not produce unless BpeScratch::allow_special; call before the first Encode.
  void SetSpecial(const std::vector<int32_t>& ids);

  // Appends the ids of one word (valid UTF-8). O(n log n) in its length. A character that has no token
  // becomes byte tokens, else the unknown token, else nothing, as the reference does.
  absl::Status Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;

  const TokenIds& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> Find(std::string_view token) const { return FindToken(vocabulary_, token); }

  // A text that is equal for two models exactly if they encode alike.
  void AppendIdentity(std::string* out) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t result;
  };

  Bpe() = default;
  absl::Status ReadOptions(const Json& model);
  absl::Status ReadVocabulary(const Json& vocab);
  absl::Status ReadMerges(const Json& merges);
  absl::Status AddMerge(size_t index, std::string_view left, std::string_view right);
  absl::Status AppendSymbols(std::string_view word, BpeScratch* scratch) const;
  absl::Status MergeAll(BpeScratch* scratch) const;
  const Merge* FindMerge(int32_t left, int32_t right, const BpeScratch& scratch) const;
  bool IsBlocked(int32_t id, const BpeScratch& scratch) const {
    return !scratch.allow_special && static_cast<size_t>(id) < special_.size() && special_[id] &&
           id != unknown_id_;
  }

  TokenIds vocabulary_;
  absl::flat_hash_map<uint32_t, int32_t> characters_;  // code point -> id of the one-character token
  absl::flat_hash_map<uint64_t, Merge> merges_;        // left << 32 | right
  std::vector<int32_t> results_;                       // by rank
  std::array<int32_t, 256> byte_ids_{};                // <0xNN>; -1 where there is none
  std::vector<bool> special_;
  int32_t unknown_id_ = -1;
  bool unknown_missing_ = false;  // the file names one that its vocabulary lacks
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace weir
