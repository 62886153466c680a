#include "model/quantize/quantize_folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "model/config/input_file.h"
#include "model/config/json_reader.h"
#include "model/loaded_model.h"
#include "model/quantize/safetensors_writer.h"
#include "model/weights/weight_map.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/system_error.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/matmul/quantize.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDescription = R"("quantization_config": {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "config_groups": {
      "group_0": {
        "targets": ["Linear", "Embedding"],
        "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false},
        "input_activations": null,
        "output_activations": null
      }
    },
    "ignore": []
  },)";

absl::Status SystemError(std::string_view what, const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(
      fmt::format("cannot {} '{}': {}", what, path, SystemErrorText(error.value())));
}

// A folder beside `to` that takes its name when it is whole.
class PartialFolder {
 public:
  explicit PartialFolder(std::string to) : to_(std::move(to)), path_(to_ + ".partial") {}
  ~PartialFolder() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  absl::Status Make() {
    std::error_code error;
    if (fs::exists(fs::symlink_status(to_, error)))
      return absl::AlreadyExistsError(fmt::format("'{}' exists; name a folder that does not", to_));
    made_ = fs::create_directory(path_, error);
    if (error) return SystemError("make folder", path_, error);
    if (made_) return absl::OkStatus();
    return absl::AlreadyExistsError(
        fmt::format("'{}' is there from another run; remove it, unless that run goes on", path_));
  }
  absl::Status Finish() {
    std::error_code error;
    fs::rename(path_, to_, error);
    if (error) return SystemError("rename folder", path_, error);
    made_ = false;
    return absl::OkStatus();
  }
  std::string File(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  const std::string to_, path_;
  bool made_ = false;
};

bool IsWeights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         name.ends_with(".bin");
}

absl::Status CopyOtherFiles(const std::string& from, const PartialFolder& to) {
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code not_regular;
    if (name == "config.json" || IsWeights(name) || !it->is_regular_file(not_regular)) continue;
    fs::copy_file(it->path(), to.File(name), error);
    if (error)
      return SystemError("copy", fmt::format("{}' to '{}", it->path().string(), to.File(name)), error);
  }
  return error ? SystemError("list", from, error) : absl::OkStatus();
}

// The text as it is, with the description in front of the first key: Infinity and the like stay what they
// are.
absl::Status WriteConfig(const std::string& from, const PartialFolder& to) {
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  WEIR_ASSIGN_OR_RETURN(std::string text, ReadTextFile(from + "/config.json", kMaxBytes));
  text.insert(text.find('{') + 1, fmt::format("\n  {}", kDescription));
  const std::string path = to.File("config.json");
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file.good()) return SystemError("write", path, {errno, std::generic_category()});
  return ConfigReader::Load(path).status();  // what others will read is read once
}

uint64_t Elements(const SafetensorsEntry& entry) {
  uint64_t count = 1;
  for (const int64_t extent : entry.shape) count *= static_cast<uint64_t>(extent);
  return count;
}

std::vector<TensorHeader> Headers(std::span<const SafetensorsEntry* const> entries,
                                  const std::set<std::string>& matrices) {
  std::vector<TensorHeader> headers;
  for (const SafetensorsEntry* entry : entries) {
    if (!matrices.contains(entry->name)) {
      headers.push_back({entry->name, entry->dtype_name, entry->shape, entry->num_bytes});
      continue;
    }
    const int64_t rows = entry->shape[0];
    headers.push_back({entry->name, "I8", entry->shape, Elements(*entry)});
    headers.push_back(
        {ScaleName(entry->name), "F32", {rows, 1}, static_cast<uint64_t>(rows) * sizeof(float)});
  }
  return headers;
}

absl::Status AppendQuantized(const WeightMap& weights, const SafetensorsEntry& entry,
                             SafetensorsWriter* writer) {
  WEIR_ASSIGN_OR_RETURN(const WeightTensor tensor, weights.Get(entry.name, entry.shape));
  std::vector<int8_t> values(static_cast<size_t>(tensor.num_elements()));
  std::vector<float> scales(static_cast<size_t>(entry.shape[0]));
  QuantizeRows(
      TensorView(const_cast<std::byte*>(tensor.data.data()), tensor.dtype, {entry.shape[0], entry.shape[1]}),
      values, scales);
  WEIR_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(values))));
  return writer->Append(std::as_bytes(std::span(scales)));
}

absl::Status WriteTensors(const WeightMap& weights, std::span<const SafetensorsEntry* const> entries,
                          const std::set<std::string>& matrices, const std::string& path) {
  SafetensorsWriter writer;
  WEIR_RETURN_IF_ERROR(writer.Open(path, Headers(entries, matrices)));
  for (const SafetensorsEntry* entry : entries) {
    if (matrices.contains(entry->name)) {
      WEIR_RETURN_IF_ERROR(AppendQuantized(weights, *entry, &writer));
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, weights.ReadBytes(entry->name));
    WEIR_RETURN_IF_ERROR(writer.Append(bytes));
  }
  return writer.Close();
}

// What the model uses: not a second copy of a tied head.
std::vector<const SafetensorsEntry*> UsedEntries(const WeightMap& weights, const LoadedModel& model) {
  std::vector<const SafetensorsEntry*> entries = weights.Entries();
  std::erase_if(entries, [&](const SafetensorsEntry* entry) { return entry->name == model.unused_head; });
  return entries;
}

}  // namespace

absl::StatusOr<QuantizedFolder> QuantizeFolder(const std::string& from, const std::string& to) {
  fs::path target(to);
  if (!target.has_filename()) target = target.parent_path();  // a slash stood at its end
  PartialFolder out(target.string());
  LoadOptions options;
  options.weight_dtype = DType::kI8;
  options.ids_only = true;
  const std::unique_ptr<Device> device = CreateCpuDevice(1);
  WEIR_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(from, *device, options));
  WEIR_ASSIGN_OR_RETURN(const WeightMap weights, WeightMap::Open(from));
  const std::set<std::string> matrices(model.matrices.begin(), model.matrices.end());
  for (const std::string& name : matrices)
    if (weights.Find(name)->dtype == DType::kI8)
      return absl::InvalidArgumentError(
          fmt::format("model folder '{}' is quantized: tensor '{}' is int8 already", from, name));
  WEIR_ASSIGN_OR_RETURN(const ConfigReader config, ConfigReader::Load(from + "/config.json"));
  if (config.Mentions("quantization_config"))
    return config.Error("quantization_config",
                        "is there, though the matrices are not quantized; take it out");
  const std::vector<const SafetensorsEntry*> entries = UsedEntries(weights, model);
  WEIR_RETURN_IF_ERROR(out.Make());
  WEIR_RETURN_IF_ERROR(WriteTensors(weights, entries, matrices, out.File("model.safetensors")));
  WEIR_RETURN_IF_ERROR(WriteConfig(from, out));
  WEIR_RETURN_IF_ERROR(CopyOtherFiles(from, out));
  WEIR_RETURN_IF_ERROR(out.Finish());
  QuantizedFolder result;
  result.matrices = std::ssize(matrices);
  for (const SafetensorsEntry* entry : entries) result.bytes_before += static_cast<int64_t>(entry->num_bytes);
  for (const TensorHeader& header : Headers(entries, matrices))
    result.bytes_after += static_cast<int64_t>(header.num_bytes);
  return result;
}

}  // namespace weir
