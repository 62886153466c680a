#include "model/quantize/safetensors_writer.h"

#include <cerrno>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/system_error.h"

namespace weir {

absl::Status SafetensorsWriter::Failed() const {
  return absl::UnavailableError(fmt::format("cannot write '{}': {}", path_, SystemErrorText(errno)));
}

absl::Status SafetensorsWriter::Open(const std::string& path, std::span<const TensorHeader> tensors) {
  path_ = path;
  left_ = 0;
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  for (const TensorHeader& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype_name},
                           {"shape", tensor.shape},
                           {"data_offsets", {left_, left_ + tensor.num_bytes}}};
    left_ += tensor.num_bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length(sizeof(uint64_t), '\0');  // little endian
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  errno = 0;
  file_.open(path, std::ios::binary | std::ios::trunc);
  file_ << length << text;
  return file_.good() ? absl::OkStatus() : Failed();
}

absl::Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  errno = 0;
  file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file_.good()) return Failed();
  left_ -= bytes.size();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Close() {
  if (left_ != 0) return absl::InternalError(fmt::format("'{}' lacks {} bytes", path_, left_));
  errno = 0;
  file_.close();
  return file_.good() ? absl::OkStatus() : Failed();
}

}  // namespace weir
