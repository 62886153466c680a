// SafetensorsWriter: one file of tensors that are produced one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir {

struct TensorHeader {
  std::string name;
  std::string dtype_name;  // "F32", "I8", ...
  std::vector<int64_t> shape;
  uint64_t num_bytes = 0;
};

// Open, then Append the bytes of each tensor in the order of the headers, then Close.
class SafetensorsWriter {
 public:
  absl::Status Open(const std::string& path, std::span<const TensorHeader> tensors);
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Close();  // INTERNAL unless all bytes of the headers have come

 private:
  absl::Status Failed() const;

  std::string path_;
  std::ofstream file_;
  uint64_t left_ = 0;  // bytes to come
};

}  // namespace weir
