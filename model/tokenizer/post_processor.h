// PostProcessor: the "post_processor" of a tokenizer.json, as the ids that go before and after a text's own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace weir {

struct PostProcessor {
  std::vector<int32_t> prefix;  // for instance the beginning-of-sequence token
  std::vector<int32_t> suffix;

  // TemplateProcessing (its "single" template), ByteLevel (which moves offsets only) and Sequences of them.
  static absl::StatusOr<PostProcessor> FromJson(const Json& json);
};

}  // namespace weir
