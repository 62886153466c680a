// SafetensorsFile: a checked reader of the safetensors format (8 bytes of header length, a JSON header, then
// the data; https://huggingface.co/docs/safetensors). Whatever the header claims is compared with the file
// before anything is read by it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/input_file.h"
#include "model/weights/weight_tensor.h"
#include "runtime/tensor/dtype.h"

namespace weir {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as the file spells it: "F32", "I64", ...
  std::optional<DType> dtype;  // set for the types that can be read: F32, F16, BF16, I8
  std::vector<int64_t> shape;  // the product of the extents fits int64
  uint64_t offset = 0;         // first byte in the file, of any alignment
  uint64_t num_bytes = 0;
};

// Move-only; const methods may be called from several threads. The file is read, never mapped: one that is
// cut after Open() gives DATA_LOSS from Read(), not SIGBUS.
class SafetensorsFile {
 public:
  // NOT_FOUND without the file; INVALID_ARGUMENT when it is not exactly what the format allows: tensors in
  // any order that fill the data part without overlap, hole or rest.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // sorted by name
  const SafetensorsEntry* Find(std::string_view name) const;                 // nullptr when absent

  // A private copy of the tensor's bytes. UNIMPLEMENTED for a type that is not served.
  absl::StatusOr<WeightTensor> Read(const SafetensorsEntry& entry) const;
  // Part of the raw bytes, of any type: `out` from byte `begin` of the tensor.
  absl::Status ReadBytes(const SafetensorsEntry& entry, uint64_t begin, std::span<std::byte> out) const;

  const std::string& path() const { return file_.path(); }

 private:
  SafetensorsFile(InputFile file, std::vector<SafetensorsEntry> tensors);

  InputFile file_;
  std::vector<SafetensorsEntry> tensors_;
};

}  // namespace weir
