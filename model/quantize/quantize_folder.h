// QuantizeFolder: a model folder with int8 matrices, the saved form of what --weight-dtype int8 makes of one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

struct QuantizedFolder {
  int64_t matrices = 0;                       // that became int8
  int64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

// Loads the model of `from`, so that what it writes is known to be served, and writes folder `to`, which must
// not exist: model.safetensors, where each matrix "a.weight" [n, k] is int8 and "a.weight_scale" f32 [n, 1]
// lies beside it, and all other tensors as they were; config.json with compressed-tensors' description of
// that
// ("int-quantized"); other files as they were. A folder that was not written whole is not left behind.
// Errors: those of LoadModel; ALREADY_EXISTS; INVALID_ARGUMENT where `from` is quantized; what the file
// system says.
absl::StatusOr<QuantizedFolder> QuantizeFolder(const std::string& from, const std::string& to);

}  // namespace weir
