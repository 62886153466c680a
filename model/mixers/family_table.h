// The table of architectures: one row each, and the only place that knows all of them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"

namespace weir {

// `name` as in config.json's "architectures". INVALID_ARGUMENT for an unknown one lists those that are known.
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadFamily(const std::string& name, const ConfigReader& config,
                                                          const FamilyOptions& options);

}  // namespace weir
