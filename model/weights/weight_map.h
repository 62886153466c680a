// WeightMap: all weights of a model folder by name, whether they lie in one file or in shards.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/weights/safetensors.h"
#include "model/weights/weight_tensor.h"

namespace weir {

// Move-only; const methods may be called from several threads. Needed only while a model is built: it holds
// open files and headers, and each Get() reads that tensor's bytes afresh, so that loading needs memory for
// one tensor at a time beside what the model keeps.
class WeightMap {
 public:
  // `model.safetensors`, or else `model.safetensors.index.json` with its shards. A shard that is missing, a
  // tensor that is not in its shard, one that the index does not know and one that is there twice are errors
  // listing all of them.
  static absl::StatusOr<WeightMap> Open(const std::string& folder);

  // Reads a tensor of floats and marks it as used. NOT_FOUND names it; INVALID_ARGUMENT names both shapes;
  // UNIMPLEMENTED names its element type.
  absl::StatusOr<WeightTensor> Get(std::string_view name, std::span<const int64_t> expected_shape) const;
  absl::StatusOr<WeightTensor> Get(std::string_view name,
                                   std::initializer_list<int64_t> expected_shape) const {
    return Get(name, std::span(expected_shape.begin(), expected_shape.size()));
  }

  // The same for a tensor of int8.
  absl::StatusOr<WeightTensor> GetInt8(std::string_view name, std::span<const int64_t> expected_shape) const;

  // All tensors, sorted by name.
  std::vector<const SafetensorsEntry*> Entries() const;
  // The bytes of a tensor of any type, which must be there. Does not mark it.
  absl::StatusOr<std::vector<std::byte>> ReadBytes(std::string_view name) const;

  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  // Name, type and shape without reading the data or marking it; nullptr when absent.
  const SafetensorsEntry* Find(std::string_view name) const;
  // For a tensor that is left aside on purpose. Nothing happens when it is absent.
  void MarkUsed(std::string_view name) const;
  // Names that were neither read nor marked, sorted.
  std::vector<std::string> Unused() const;

  int64_t num_tensors() const { return static_cast<int64_t>(tensors_.size()); }
  int64_t total_bytes() const;

  // A 64-bit hash of every tensor's name, type, shape and bytes; how they are spread over files has no
  // influence. Reads all data: ask once and keep it. It tells models apart and finds accidents; it does not
  // resist an attacker.
  absl::StatusOr<uint64_t> Fingerprint() const;

 private:
  struct Location {
    const SafetensorsEntry* entry;
    const SafetensorsFile* file;
  };
  WeightMap() = default;
  const Location* Locate(std::string_view name) const;
  absl::StatusOr<WeightTensor> GetAs(bool int8, std::string_view name, std::span<const int64_t> shape) const;
  void Finish();  // sorts tensors_ by name

  // Files are behind pointers so that entries keep their address when the map moves.
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Location> tensors_;  // sorted by name
  std::unique_ptr<std::atomic<bool>[]> used_;
};

// The scales [n, 1] or [n] of the int8 matrix `name` [n, k]: that of "a.weight" is "a.weight_scale", as
// compressed-tensors calls them.
std::string ScaleName(std::string_view name);

}  // namespace weir
