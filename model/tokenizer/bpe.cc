#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "model/tokenizer/utf8.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr uint64_t kOperationsPerCancelCheck = 4096;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

bool HasText(const Json& model, const char* key) {
  const Json* field = FindField(model, key);
  return field != nullptr && !(field->is_string() && field->get_ref<const std::string&>().empty());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bpe>> Bpe::FromJson(const Json& model) {
  if (!model.is_object()) return TokenizerError("model", "must be an object");
  const Json* vocab = FindField(model, "vocab");
  const Json* merges = FindField(model, "merges");
  // Old files leave out the type; only this model has merges.
  std::string type = merges != nullptr ? "BPE" : "";
  if (FindField(model, "type") != nullptr) {
    WEIR_ASSIGN_OR_RETURN(type, StringField(model, "type", "model"));
  }
  if (type != "BPE") {
    return TokenizerError("model", fmt::format("type {} is not supported; only BPE is", Quoted(type)));
  }
  if (vocab == nullptr || !vocab->is_object()) return TokenizerError("model.vocab", "must be an object");
  if (merges == nullptr || !merges->is_array()) return TokenizerError("model.merges", "must be a list");
  std::unique_ptr<Bpe> bpe(new Bpe);
  WEIR_RETURN_IF_ERROR(bpe->ReadVocabulary(*vocab));
  WEIR_RETURN_IF_ERROR(bpe->ReadOptions(model));
  WEIR_RETURN_IF_ERROR(bpe->ReadMerges(*merges));
  return bpe;
}

absl::Status Bpe::ReadVocabulary(const Json& vocab) {
  vocabulary_.reserve(vocab.size());
  absl::flat_hash_map<int32_t, std::string_view> owners;
  for (const auto& [token, value] : vocab.items()) {
    WEIR_ASSIGN_OR_RETURN(const int32_t id, IdValue(value, fmt::format("model.vocab[{}]", Quoted(token))));
    const auto it = vocabulary_.emplace(token, id).first;
    if (const auto [owner, is_new] = owners.try_emplace(id, token); !is_new) {
      return TokenizerError("model.vocab", fmt::format("id {} belongs to {} and to {}", id,
                                                       Quoted(owner->second), Quoted(it->first)));
    }
    size_t pos = 0;
    if (!token.empty()) {
      const uint32_t code_point = NextCodePoint(token, &pos);
      if (pos == token.size()) characters_.emplace(code_point, id);
    }
  }
  return absl::OkStatus();
}

absl::Status Bpe::ReadOptions(const Json& model) {
  if (FindField(model, "dropout") != nullptr) {
    return TokenizerError("model.dropout", "a random encoding is not supported; set it to null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (HasText(model, key)) return TokenizerError(fmt::format("model.{}", key), "is not supported");
  }
  WEIR_ASSIGN_OR_RETURN(byte_fallback_, BoolField(model, "byte_fallback", false, "model"));
  WEIR_ASSIGN_OR_RETURN(fuse_unknown_, BoolField(model, "fuse_unk", false, "model"));
  WEIR_ASSIGN_OR_RETURN(ignore_merges_, BoolField(model, "ignore_merges", false, "model"));
  if (FindField(model, "unk_token") != nullptr) {
    WEIR_ASSIGN_OR_RETURN(const std::string unknown, StringField(model, "unk_token", "model"));
    unknown_id_ = Find(unknown).value_or(-1);
    unknown_missing_ = unknown_id_ < 0;
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = byte_fallback_ ? Find(fmt::format("<0x{:02X}>", byte)).value_or(-1) : -1;
  }
  return absl::OkStatus();
}

absl::Status Bpe::ReadMerges(const Json& merges) {
  merges_.reserve(merges.size());
  results_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& entry = merges[i];
    if (entry.is_string()) {
      const std::string_view line = entry.get_ref<const std::string&>();
      if (line.substr(0, 8) == "#version") {
        results_.push_back(-1);  // keeps rank and index equal
        continue;
      }
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        return TokenizerError(fmt::format("model.merges[{}]", i),
                              fmt::format("{} must be two tokens with one space between", Quoted(line)));
      }
      WEIR_RETURN_IF_ERROR(AddMerge(i, line.substr(0, space), line.substr(space + 1)));
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      WEIR_RETURN_IF_ERROR(
          AddMerge(i, entry[0].get_ref<const std::string&>(), entry[1].get_ref<const std::string&>()));
    } else {
      return TokenizerError(fmt::format("model.merges[{}]", i), "must be \"a b\" or [\"a\", \"b\"]");
    }
  }
  return absl::OkStatus();
}

absl::Status Bpe::AddMerge(size_t index, std::string_view left, std::string_view right) {
  const std::string whole = std::string(left) + std::string(right);
  int32_t ids[3];
  const std::string_view tokens[3] = {left, right, whole};
  for (int i = 0; i < 3; ++i) {
    const std::optional<int32_t> id = Find(tokens[i]);
    if (!id.has_value()) {
      return TokenizerError(fmt::format("model.merges[{}]", index),
                            fmt::format("{} is not in the vocabulary", Quoted(tokens[i])));
    }
    ids[i] = *id;
  }
  // A pair that is listed twice has the later rank in the reference.
  merges_.insert_or_assign(PairKey(ids[0], ids[1]), Merge{static_cast<uint32_t>(index), ids[2]});
  results_.push_back(ids[2]);
  return absl::OkStatus();
}

void Bpe::SetSpecial(const std::vector<int32_t>& ids) {
  special_.clear();
  for (const int32_t id : ids) {
    if (special_.size() <= static_cast<size_t>(id)) special_.resize(id + 1);
    special_[id] = true;
  }
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right, const BpeScratch& scratch) const {
  const auto it = merges_.find(PairKey(left, right));
  if (it == merges_.end() || IsBlocked(it->second.result, scratch)) return nullptr;
  return &it->second;
}

absl::Status Bpe::Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    const std::optional<int32_t> whole = Find(word);
    if (whole.has_value() && !IsBlocked(*whole, *scratch)) {
      ids->push_back(*whole);
      return absl::OkStatus();
    }
  }
  WEIR_RETURN_IF_ERROR(AppendSymbols(word, scratch));
  WEIR_RETURN_IF_ERROR(MergeAll(scratch));
  for (const BpeScratch::Symbol& symbol : scratch->symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
  return absl::OkStatus();
}

absl::Status Bpe::AppendSymbols(std::string_view word, BpeScratch* scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols;
  symbols.clear();
  const auto add = [&symbols](int32_t id) {
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  };
  bool unknown_waits = false;  // one unknown token is held back, since the next may be fused into it
  for (size_t pos = 0; pos < word.size();) {
    const size_t begin = pos;
    const uint32_t code_point = NextCodePoint(word, &pos);
    const auto it = characters_.find(code_point);
    const bool blocked = it != characters_.end() && IsBlocked(it->second, *scratch);
    if (it != characters_.end() && !blocked) {
      if (std::exchange(unknown_waits, false)) add(unknown_id_);
      add(it->second);
      continue;
    }
    const std::string_view bytes = word.substr(begin, pos - begin);
    if (std::all_of(bytes.begin(), bytes.end(), [this](unsigned char b) { return byte_ids_[b] >= 0; })) {
      // A waiting unknown token stays behind these bytes, as in the reference; it only waits where a file has
      // some byte tokens but not all.
      for (const unsigned char b : bytes) add(byte_ids_[b]);
    } else if (unknown_id_ >= 0) {
      if (unknown_waits && !fuse_unknown_) add(unknown_id_);
      unknown_waits = true;
    } else if (unknown_missing_) {
      return absl::InvalidArgumentError(fmt::format(
          "text holds {}, which has no token, and the tokenizer's unk_token is not in its vocabulary",
          Quoted(bytes)));
    } else if (blocked) {
      return absl::InvalidArgumentError(
          fmt::format("text holds {}, which is a special token and has no other spelling; allow special "
                      "tokens to send it",
                      Quoted(bytes)));
    }
  }
  if (unknown_waits) add(unknown_id_);
  if (!symbols.empty()) symbols.back().next = -1;
  return absl::OkStatus();
}

// The pair of lowest rank, and of those the leftmost, is merged until none is left. A doubly linked list
// holds the symbols; the pairs of the start are sorted once, those that merging brings forth wait in a heap.
// Each merge removes one symbol and adds at most two pairs, so the queue never holds more than 3n entries in
// all.
absl::Status Bpe::MergeAll(BpeScratch* scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols;
  std::vector<uint64_t>& sorted = scratch->sorted;
  std::vector<uint64_t>& heap = scratch->heap;
  sorted.clear();
  heap.clear();
  const auto cancelled = [scratch] {
    if (scratch->cancelled == nullptr || scratch->operations < scratch->next_cancel_check) return false;
    scratch->next_cancel_check = scratch->operations + kOperationsPerCancelCheck;
    return scratch->cancelled->load(std::memory_order_relaxed);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    ++scratch->operations;
    if (cancelled()) return absl::CancelledError("tokenizing was cancelled");
    const Merge* merge = FindMerge(symbols[i].id, symbols[i + 1].id, *scratch);
    if (merge != nullptr) sorted.push_back(uint64_t{merge->rank} << 32 | i);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto push = [&](int32_t left) {
    ++scratch->operations;
    const Merge* merge = FindMerge(symbols[left].id, symbols[symbols[left].next].id, *scratch);
    if (merge == nullptr) return;
    heap.push_back(uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  size_t taken = 0;
  while (taken < sorted.size() || !heap.empty()) {
    ++scratch->operations;
    if (cancelled()) return absl::CancelledError("tokenizing was cancelled");
    uint64_t entry = 0;
    if (heap.empty() || (taken < sorted.size() && sorted[taken] < heap.front())) {
      entry = sorted[taken++];
    } else {
      entry = heap.front();
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.pop_back();
    }
    const auto at = static_cast<int32_t>(entry & 0xFFFFFFFF);
    const int32_t result = results_[entry >> 32];
    BpeScratch::Symbol& left = symbols[at];
    if (left.id < 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    // An entry is out of date when its symbols have changed; like the reference, what counts is the result.
    const Merge* merge = FindMerge(left.id, right.id, *scratch);
    if (merge == nullptr || merge->result != result) continue;
    left.id = result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = at;
    if (left.previous >= 0) push(left.previous);
    if (left.next >= 0) push(at);
  }
  return absl::OkStatus();
}

void Bpe::AppendIdentity(std::string* out) const {
  std::vector<std::pair<int32_t, std::string_view>> tokens;
  tokens.reserve(vocabulary_.size());
  for (const auto& [token, id] : vocabulary_) tokens.emplace_back(id, token);
  std::sort(tokens.begin(), tokens.end());
  for (const auto& [id, token] : tokens) *out += fmt::format("{}:{}:{}\n", id, token.size(), token);
  std::vector<std::pair<uint32_t, uint64_t>> merges;
  merges.reserve(merges_.size());
  for (const auto& [pair, merge] : merges_) merges.emplace_back(merge.rank, pair);
  std::sort(merges.begin(), merges.end());
  for (const auto& [rank, pair] : merges) *out += fmt::format("{}+{}\n", pair >> 32, pair & 0xFFFFFFFF);
  *out += fmt::format("unk {} {} {} {} {}\n", unknown_id_, unknown_missing_, byte_fallback_, fuse_unknown_,
                      ignore_merges_);
}

}  // namespace weir
