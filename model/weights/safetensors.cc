#include "model/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "model/config/json_parse.h"
#include "nlohmann/json.hpp"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr uint64_t kMaxInt = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

struct DtypeInfo {
  std::string_view name;
  int bits;
  std::optional<DType> served;
};

constexpr DtypeInfo kDtypes[] = {
    {"F32", 32, DType::kF32}, {"F16", 16, DType::kF16}, {"BF16", 16, DType::kBF16},
    {"F64", 64, {}},          {"I64", 64, {}},          {"U64", 64, {}},
    {"I32", 32, {}},          {"U32", 32, {}},          {"I16", 16, {}},
    {"U16", 16, {}},          {"I8", 8, DType::kI8},    {"U8", 8, {}},
    {"BOOL", 8, {}},          {"F8_E4M3", 8, {}},       {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},       {"C64", 64, {}},          {"F4", 4, {}},
    {"F6_E2M3", 6, {}},       {"F6_E3M2", 6, {}},
};

bool Multiply(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product) && *product <= kMaxInt;
}

// Turns one header entry into a SafetensorsEntry; offsets become positions in the file.
class EntryParser {
 public:
  EntryParser(const std::string& path, uint64_t data_begin, uint64_t data_bytes)
      : path_(path), data_begin_(data_begin), data_bytes_(data_bytes) {}

  absl::StatusOr<SafetensorsEntry> Parse(const std::string& name, const Json& json) const {
    SafetensorsEntry entry;
    entry.name = name;
    if (!json.is_object()) return Error(name, "is not described by an object");
    for (const auto& field : json.items()) {
      if (field.key() != "dtype" && field.key() != "shape" && field.key() != "data_offsets") {
        return Error(name, fmt::format("has the unknown field {}", Quoted(field.key())));
      }
    }
    WEIR_ASSIGN_OR_RETURN(const DtypeInfo* dtype, ParseDtype(name, json));
    entry.dtype_name = dtype->name;
    entry.dtype = dtype->served;
    WEIR_ASSIGN_OR_RETURN(const uint64_t expected, ParseShape(name, json, dtype->bits, &entry.shape));
    WEIR_RETURN_IF_ERROR(ParseOffsets(json, &entry));
    if (entry.num_bytes != expected) {
      return Error(name, fmt::format("has {} bytes in data_offsets, but {} of shape {} needs {}",
                                     entry.num_bytes, entry.dtype_name, FormatShape(entry.shape), expected));
    }
    return entry;
  }

 private:
  absl::Status Error(std::string_view name, std::string_view problem) const {
    return absl::InvalidArgumentError(fmt::format("{}: tensor {} {}", path_, Quoted(name), problem));
  }

  absl::StatusOr<const DtypeInfo*> ParseDtype(const std::string& name, const Json& json) const {
    const auto found = json.find("dtype");
    if (found == json.end() || !found->is_string()) return Error(name, "has no dtype string");
    const std::string& spelling = found->get_ref<const std::string&>();
    for (const DtypeInfo& info : kDtypes) {
      if (info.name == spelling) return &info;
    }
    return Error(name, fmt::format("has the unknown dtype {}", Quoted(spelling)));
  }

  // Returns the bytes that the shape needs.
  absl::StatusOr<uint64_t> ParseShape(const std::string& name, const Json& json, int bits,
                                      std::vector<int64_t>* shape) const {
    const auto found = json.find("shape");
    if (found == json.end() || !found->is_array()) return Error(name, "has no shape list");
    uint64_t num_bits = static_cast<uint64_t>(bits);
    for (const Json& extent : *found) {
      if (!extent.is_number_unsigned() || extent.get<uint64_t>() > kMaxInt) {
        return Error(name, fmt::format("has {} in its shape, which is not an integer from 0 to 2^63-1",
                                       Quoted(extent.dump(-1, ' ', true))));
      }
      shape->push_back(extent.get<int64_t>());
      // A wrapped product would pass for a small or an empty tensor.
      if (!Multiply(num_bits, extent.get<uint64_t>(), &num_bits)) {
        return Error(name, fmt::format("of shape {} has more bits than 2^63; the file has {} bytes of data",
                                       Quoted(found->dump()), data_bytes_));
      }
    }
    if (num_bits % 8 != 0) return Error(name, fmt::format("has {} bits, which is not whole bytes", num_bits));
    return num_bits / 8;
  }

  absl::Status ParseOffsets(const Json& json, SafetensorsEntry* entry) const {
    const auto found = json.find("data_offsets");
    if (found == json.end() || !found->is_array() || found->size() != 2) {
      return Error(entry->name, "has no data_offsets list of exactly two numbers");
    }
    for (const Json& offset : *found) {
      if (!offset.is_number_unsigned()) {
        return Error(entry->name, fmt::format("has {} in data_offsets, which is not an integer of 0 or more",
                                              Quoted(offset.dump(-1, ' ', true))));
      }
    }
    const uint64_t begin = (*found)[0].get<uint64_t>();
    const uint64_t end = (*found)[1].get<uint64_t>();
    if (begin > end) {
      return Error(entry->name, fmt::format("begins at {} after its end at {}", begin, end));
    }
    if (end > data_bytes_) {
      return Error(entry->name,
                   fmt::format("ends at {}, but the file has {} bytes of data; it is cut or damaged", end,
                               data_bytes_));
    }
    entry->offset = data_begin_ + begin;
    entry->num_bytes = end - begin;
    return absl::OkStatus();
  }

  const std::string& path_;
  const uint64_t data_begin_;
  const uint64_t data_bytes_;
};

absl::Status CheckMetadata(const std::string& path, const Json& metadata) {
  if (!metadata.is_object()) {
    return absl::InvalidArgumentError(fmt::format("{}: __metadata__ is not an object", path));
  }
  for (const auto& item : metadata.items()) {
    if (!item.value().is_string()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: __metadata__ entry {} is not a string", path, Quoted(item.key())));
    }
  }
  return absl::OkStatus();
}

// The data part must be tiled exactly. `data_end` is the file's size.
absl::Status CheckLayout(const std::string& path, const std::vector<SafetensorsEntry>& tensors,
                         uint64_t data_begin, uint64_t data_end) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->num_bytes) < std::pair(b->offset, b->num_bytes);
  });
  uint64_t position = data_begin;
  for (const SafetensorsEntry* entry : order) {
    if (entry->offset != position) {
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor {} begins at data byte {}, but the one before it ends at {}: {}", path,
                      Quoted(entry->name), entry->offset - data_begin, position - data_begin,
                      entry->offset < position ? "they overlap" : "a hole"));
    }
    position += entry->num_bytes;
  }
  if (position != data_end) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the tensors end at byte {}, but the file has {} bytes", path, position, data_end));
  }
  return absl::OkStatus();
}

// Returns the header text and leaves its length in the file to the caller: text.size() + kLengthBytes.
absl::StatusOr<std::string> ReadHeader(const InputFile& file) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} has {} bytes, too few for a safetensors file", file.path(), file.size()));
  }
  std::array<std::byte, kLengthBytes> prefix;
  WEIR_RETURN_IF_ERROR(file.ReadAt(0, prefix));
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    const std::string_view start(reinterpret_cast<const char*>(prefix.data()), prefix.size());
    if (start == "version ")
      return absl::InvalidArgumentError(
          fmt::format("{} is not the weights but git-lfs's pointer to them; fetch them with 'git lfs pull'",
                      file.path()));
    if (start.starts_with("<!") || start.starts_with("<htm") || start.starts_with("<HTM"))
      return absl::InvalidArgumentError(
          fmt::format("{} is a web page, not safetensors; download the file itself", file.path()));
    return absl::InvalidArgumentError(
        fmt::format("{}: header length {} is over the limit of {}; not safetensors?", file.path(), length,
                    kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{}: header length {} is more than the {} bytes that follow it", file.path(), length,
                    file.size() - kLengthBytes));
  }
  std::string header(length, '\0');
  WEIR_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(header))));
  if (!header.starts_with('{')) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the header of {} bytes does not begin with '{{'", file.path(), length));
  }
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(InputFile file, std::vector<SafetensorsEntry> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  WEIR_ASSIGN_OR_RETURN(const std::string header, ReadHeader(file));
  WEIR_ASSIGN_OR_RETURN(const Json json, ParseJson(header, fmt::format("the header of {}", path),
                                                   {.max_bytes = kMaxHeaderBytes, .max_depth = 4}));
  const uint64_t data_begin = kLengthBytes + header.size();
  const EntryParser parser(path, data_begin, file.size() - data_begin);
  std::vector<SafetensorsEntry> tensors;
  for (const auto& item : json.items()) {  // nlohmann keeps keys sorted
    if (item.key() == "__metadata__") {
      WEIR_RETURN_IF_ERROR(CheckMetadata(path, item.value()));
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(SafetensorsEntry entry, parser.Parse(item.key(), item.value()));
    tensors.push_back(std::move(entry));
  }
  WEIR_RETURN_IF_ERROR(CheckLayout(path, tensors, data_begin, file.size()));
  return SafetensorsFile(std::move(file), std::move(tensors));
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const SafetensorsEntry& entry, auto key) { return entry.name < key; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

absl::Status SafetensorsFile::ReadBytes(const SafetensorsEntry& entry, uint64_t begin,
                                        std::span<std::byte> out) const {
  WEIR_CHECK(begin <= entry.num_bytes && out.size() <= entry.num_bytes - begin);
  return file_.ReadAt(entry.offset + begin, out);
}

absl::StatusOr<WeightTensor> SafetensorsFile::Read(const SafetensorsEntry& entry) const {
  if (!entry.dtype) {
    return absl::UnimplementedError(
        fmt::format("{}: tensor {} has dtype {}; F32, F16, BF16 and I8 are served", path(),
                    Quoted(entry.name), entry.dtype_name));
  }
  // A cache line's alignment lets the bytes be used in place by any kernel.
  constexpr std::align_val_t kAlignment{64};
  auto* bytes = static_cast<std::byte*>(::operator new(entry.num_bytes, kAlignment, std::nothrow));
  if (bytes == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: no memory for tensor {} of {} bytes", path(), Quoted(entry.name), entry.num_bytes));
  }
  std::shared_ptr<std::byte[]> owner(bytes,
                                     [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); });
  const std::span<std::byte> data(bytes, entry.num_bytes);
  if (absl::Status status = file_.ReadAt(entry.offset, data); !status.ok()) {
    return absl::Status(status.code(),
                        fmt::format("tensor {}: {}", Quoted(entry.name),
                                    std::string_view(status.message().data(), status.message().size())));
  }
  return WeightTensor{entry.name, *entry.dtype, entry.shape, data, std::move(owner)};
}

}  // namespace weir
