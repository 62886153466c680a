// What a model folder says about how to generate: its special ids and the sampling settings its authors
// advise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// A field that the folder does not set is empty; the server's own default then holds.
struct GenerationDefaults {
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // any of them ends a generation
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;  // 0: off (a file's -1 is read as 0)
  std::optional<bool> do_sample;

  // Reads generation_config.json; a special id that it does not mention, and all of them when there is no
  // such file, come from config.json. A null there means "none" and is not looked up further. Neither file is
  // required.
  static absl::StatusOr<GenerationDefaults> Load(const std::string& folder);
};

}  // namespace weir
