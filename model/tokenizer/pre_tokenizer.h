// PreTokenizer: the "pre_tokenizer" of a tokenizer.json, which cuts text into the words that the model sees.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/normalizer.h"

namespace weir {

// Part of Words::text. `at_start`: it begins the whole input.
struct WordSpan {
  size_t begin;
  size_t end;
  bool at_start;
};

// A text and its words, in order and not empty; what a step removed lies between them.
struct Words {
  std::string text;
  std::vector<WordSpan> spans;
};

// Immutable, usable from any thread.
class PreTokenizer {
 public:
  // Refuses kinds that are not implemented; null for a null `json`.
  static absl::StatusOr<std::unique_ptr<const PreTokenizer>> FromJson(const Json& json);

  virtual ~PreTokenizer() = default;
  // Cuts (and may rewrite) every word further.
  virtual absl::Status Apply(const EncodeContext& context, Words* words) const = 0;
};

}  // namespace weir
