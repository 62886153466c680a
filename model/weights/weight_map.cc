#include "model/weights/weight_map.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "model/config/json_parse.h"
#include "model/weights/content_hash.h"
#include "nlohmann/json.hpp"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kReadBlockBytes = size_t{1} << 20;

// "a", "b" and 17 more
std::string ListNames(const std::vector<std::string>& names) {
  constexpr size_t kMaxShown = 10;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMaxShown); ++i) shown.push_back(Quoted(names[i]));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (names.size() > kMaxShown) text += fmt::format(" and {} more", names.size() - kMaxShown);
  return text;
}

// A shard lies in the model's own folder; nothing in the index may lead out of it.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name.find("..") == std::string_view::npos &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

struct ShardIndex {
  std::map<std::string, std::string> shard_of;  // by tensor
  std::set<std::string> shards;
};

absl::StatusOr<ShardIndex> ReadIndex(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  WEIR_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, path, {.max_bytes = kMaxIndexBytes}));
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || found == json.end() || !found->is_object() || found->empty()) {
    return absl::InvalidArgumentError(fmt::format("{} has no weight_map object that names tensors", path));
  }
  ShardIndex index;
  for (const auto& item : found->items()) {
    if (!item.value().is_string()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: the shard of {} is not a string", path, Quoted(item.key())));
    }
    const std::string& shard = item.value().get_ref<const std::string&>();
    if (!IsPlainFileName(shard)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: shard {} of tensor {} is not the name of a file in the same folder", path,
                      Quoted(shard), Quoted(item.key())));
    }
    index.shard_of.emplace(item.key(), shard);
    index.shards.insert(shard);
  }
  return index;
}

// Compares the index with what the shards hold; the message lists everything that is wrong.
absl::Status CheckIndex(const std::string& path, const ShardIndex& index,
                        const std::map<std::string, std::vector<std::string>>& shards_with) {
  std::vector<std::string> missing;
  std::vector<std::string> doubled;
  std::vector<std::string> unknown;
  for (const auto& [tensor, shard] : index.shard_of) {
    const auto found = shards_with.find(tensor);
    const bool present = found != shards_with.end() &&
                         std::find(found->second.begin(), found->second.end(), shard) != found->second.end();
    if (!present) missing.push_back(fmt::format("{} in {}", tensor, shard));
  }
  for (const auto& [tensor, shards] : shards_with) {
    if (shards.size() > 1) doubled.push_back(fmt::format("{} in {}", tensor, fmt::join(shards, " and ")));
    if (!index.shard_of.contains(tensor)) unknown.push_back(fmt::format("{} in {}", tensor, shards.front()));
  }
  std::vector<std::string> problems;
  if (!missing.empty()) problems.push_back("tensors that are not in their shard: " + ListNames(missing));
  if (!doubled.empty()) problems.push_back("tensors that are in several shards: " + ListNames(doubled));
  if (!unknown.empty()) problems.push_back("tensors that the index does not name: " + ListNames(unknown));
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} does not fit its shards: {}", path, fmt::join(problems, "; ")));
}

void HashText(std::string_view text, ContentHash* hash) {
  const uint64_t size = text.size();  // first, so that "ab" + "c" differs from "a" + "bc"
  hash->Update(std::as_bytes(std::span(&size, 1)));
  hash->Update(std::as_bytes(std::span(text)));
}

}  // namespace

absl::StatusOr<WeightMap> WeightMap::Open(const std::string& folder) {
  WeightMap map;
  const std::string single_path = fmt::format("{}/{}", folder, kSingleFile);
  absl::StatusOr<SafetensorsFile> single = SafetensorsFile::Open(single_path);
  if (single.ok()) {
    map.files_.push_back(std::make_unique<SafetensorsFile>(*std::move(single)));
    map.Finish();
    return map;
  }
  if (!absl::IsNotFound(single.status())) return single.status();

  const std::string index_path = fmt::format("{}/{}", folder, kIndexFile);
  absl::StatusOr<ShardIndex> index = ReadIndex(index_path);
  if (absl::IsNotFound(index.status())) {
    std::error_code none;  // without it, a file that cannot be looked at is an exception
    const bool has_bin = std::filesystem::exists(folder + "/pytorch_model.bin", none) ||
                         std::filesystem::exists(folder + "/pytorch_model.bin.index.json", none);
    return absl::NotFoundError(
        fmt::format("{} has neither {} nor {}; {}", folder, kSingleFile, kIndexFile,
                    has_bin ? "its pytorch_model.bin has to be converted with model/training/convert_bin.py"
                            : "other weight formats must be converted"));
  }
  if (!index.ok()) return index.status();
  std::vector<std::string> absent;
  std::map<std::string, std::vector<std::string>> shards_with;  // by tensor
  for (const std::string& shard : index->shards) {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(fmt::format("{}/{}", folder, shard));
    if (absl::IsNotFound(file.status())) {
      absent.push_back(shard);
      continue;
    }
    if (!file.ok()) return file.status();
    for (const SafetensorsEntry& entry : file->tensors()) shards_with[entry.name].push_back(shard);
    map.files_.push_back(std::make_unique<SafetensorsFile>(*std::move(file)));
  }
  if (!absent.empty()) {
    return absl::NotFoundError(fmt::format("{} names {} shards, {} of which are not in the folder: {}",
                                           index_path, index->shards.size(), absent.size(),
                                           ListNames(absent)));
  }
  WEIR_RETURN_IF_ERROR(CheckIndex(index_path, *index, shards_with));
  map.Finish();
  return map;
}

void WeightMap::Finish() {
  for (const auto& file : files_) {
    for (const SafetensorsEntry& entry : file->tensors()) tensors_.push_back({&entry, file.get()});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Location& a, const Location& b) { return a.entry->name < b.entry->name; });
  used_ = std::make_unique<std::atomic<bool>[]>(tensors_.size());
}

const WeightMap::Location* WeightMap::Locate(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const Location& a, auto key) { return a.entry->name < key; });
  return found != tensors_.end() && found->entry->name == name ? &*found : nullptr;
}

const SafetensorsEntry* WeightMap::Find(std::string_view name) const {
  const Location* location = Locate(name);
  return location == nullptr ? nullptr : location->entry;
}

absl::StatusOr<WeightTensor> WeightMap::Get(std::string_view name,
                                            std::span<const int64_t> expected_shape) const {
  return GetAs(/*int8=*/false, name, expected_shape);
}

absl::StatusOr<WeightTensor> WeightMap::GetInt8(std::string_view name,
                                                std::span<const int64_t> expected_shape) const {
  return GetAs(/*int8=*/true, name, expected_shape);
}

absl::StatusOr<WeightTensor> WeightMap::GetAs(bool int8, std::string_view name,
                                              std::span<const int64_t> expected_shape) const {
  const Location* location = Locate(name);
  if (location == nullptr) {
    return absl::NotFoundError(fmt::format("tensor {} is not among the {} tensors of the model's files",
                                           Quoted(name), tensors_.size()));
  }
  const SafetensorsEntry& entry = *location->entry;
  if (!std::equal(entry.shape.begin(), entry.shape.end(), expected_shape.begin(), expected_shape.end())) {
    return absl::InvalidArgumentError(fmt::format("{}: tensor {} has shape {}, the model needs {}",
                                                  location->file->path(), Quoted(name),
                                                  FormatShape(entry.shape), FormatShape(expected_shape)));
  }
  if (entry.dtype.has_value() && (*entry.dtype == DType::kI8) != int8) {
    return absl::UnimplementedError(fmt::format("{}: tensor {} has dtype {} where {} are needed",
                                                location->file->path(), Quoted(name), entry.dtype_name,
                                                int8 ? "integers of 8 bits" : "floats"));
  }
  MarkUsed(name);
  return location->file->Read(entry);
}

std::vector<const SafetensorsEntry*> WeightMap::Entries() const {
  std::vector<const SafetensorsEntry*> entries;
  for (const Location& location : tensors_) entries.push_back(location.entry);
  return entries;
}

absl::StatusOr<std::vector<std::byte>> WeightMap::ReadBytes(std::string_view name) const {
  const Location* location = Locate(name);
  WEIR_CHECK(location != nullptr);
  std::vector<std::byte> bytes(location->entry->num_bytes);
  WEIR_RETURN_IF_ERROR(location->file->ReadBytes(*location->entry, 0, bytes));
  return bytes;
}

void WeightMap::MarkUsed(std::string_view name) const {
  const Location* location = Locate(name);
  if (location != nullptr) used_[location - tensors_.data()].store(true, std::memory_order_relaxed);
}

std::vector<std::string> WeightMap::Unused() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!used_[i].load(std::memory_order_relaxed)) names.push_back(tensors_[i].entry->name);
  }
  return names;
}

int64_t WeightMap::total_bytes() const {
  int64_t total = 0;
  for (const Location& location : tensors_) total += static_cast<int64_t>(location.entry->num_bytes);
  return total;
}

absl::StatusOr<uint64_t> WeightMap::Fingerprint() const {
  ContentHash hash;
  std::vector<std::byte> block(kReadBlockBytes);
  for (const auto& [entry, file] : tensors_) {
    HashText(entry->name, &hash);
    HashText(entry->dtype_name, &hash);
    HashText(fmt::format("{}", fmt::join(entry->shape, ",")), &hash);
    for (uint64_t begin = 0; begin < entry->num_bytes;) {
      const auto part = std::span(block).first(std::min<uint64_t>(block.size(), entry->num_bytes - begin));
      WEIR_RETURN_IF_ERROR(file->ReadBytes(*entry, begin, part));
      hash.Update(part);
      begin += part.size();
    }
  }
  return hash.Finish();
}

std::string ScaleName(std::string_view name) { return std::string(name) + "_scale"; }

}  // namespace weir
