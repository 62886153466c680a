// Normalizer: the "normalizer" of a tokenizer.json, which rewrites text before it is split.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace weir {

// What one Encode call tells each step.
struct EncodeContext {
  bool continuation =
      false;  // the text goes on from an earlier one: nothing is added to or cut from its start
  const std::atomic<bool>* cancelled = nullptr;
};

// Immutable, usable from any thread.
class Normalizer {
 public:
  // Refuses kinds that are not implemented; null for a null `json`.
  static absl::StatusOr<std::unique_ptr<const Normalizer>> FromJson(const Json& json);

  virtual ~Normalizer() = default;
  // Rewrites `*text`. `*at_start`: the text begins the whole input; cleared when what stood there was cut
  // off.
  virtual absl::Status Apply(const EncodeContext& context, std::string* text, bool* at_start) const = 0;
};

}  // namespace weir
