// Writes safetensors files for tests, right ones from tensors and wrong ones from a header given as text.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/check.h"
#include "runtime/tensor/dtype.h"

namespace weir::testing {

struct TensorSpec {
  std::string name;  // needs no escaping in JSON
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline TensorSpec F32Tensor(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {std::move(name), "F32", std::move(shape), BytesOf(values)};
}

// Rounds to F16 or BF16.
template <class T>
TensorSpec HalfTensor(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
  std::vector<T> halves;
  for (float value : values) halves.push_back(T::FromFloat(value));
  return {std::move(name), DTypeOf<T>::kValue == DType::kF16 ? "F16" : "BF16", std::move(shape),
          BytesOf(halves)};
}

// Any header text in front of any data; the length field is the text's unless `length` says otherwise.
inline std::string RawSafetensors(std::string_view header, std::string_view data, uint64_t length) {
  std::string file(sizeof length, '\0');
  for (size_t i = 0; i < sizeof length; ++i) file[i] = static_cast<char>(length >> (8 * i));
  return file.append(header).append(data);
}
inline std::string RawSafetensors(std::string_view header, std::string_view data) {
  return RawSafetensors(header, data, header.size());
}

// A right file; the header is padded with spaces to `header_bytes` where that is larger.
inline std::string SafetensorsBytes(const std::vector<TensorSpec>& tensors, size_t header_bytes = 0) {
  std::string header = "{";
  std::string data;
  for (const TensorSpec& tensor : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", tensor.name, tensor.dtype,
                          fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  WEIR_CHECK(header_bytes == 0 || header.size() <= header_bytes);
  if (header_bytes > header.size()) header.append(header_bytes - header.size(), ' ');
  return RawSafetensors(header, data);
}

}  // namespace weir::testing
