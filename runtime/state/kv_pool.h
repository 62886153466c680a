// KvPool: all paged state, in blocks of kKvBlockTokens tokens that hold every layer's keys and values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/state/state_spec.h"

namespace weir {

class KvPool;

// The blocks of one sequence, in order of position. Gives them back when it ends.
class BlockTable {
 public:
  BlockTable() = default;
  BlockTable(BlockTable&& other) noexcept { *this = std::move(other); }
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { Truncate(0); }

  const std::vector<int32_t>& blocks() const { return blocks_; }
  // Makes room for positions [0, num_tokens); all or nothing.
  bool Reserve(KvPool* pool, int64_t num_tokens);
  // Gives back what positions [0, num_tokens) do not need.
  void Truncate(int64_t num_tokens);

 private:
  KvPool* pool_ = nullptr;
  std::vector<int32_t> blocks_;
};

// Engine thread only. Allocated once; outlives its tables.
class KvPool {
 public:
  static absl::StatusOr<KvPool> Create(const PagedSpec& spec, int64_t num_blocks, Device& device);
  KvPool(KvPool&&) = default;
  KvPool& operator=(KvPool&&) = delete;  // tables point here

  static int64_t BlocksFor(int64_t num_tokens) { return (num_tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t block_bytes() const { return spec_.block_bytes(kKvBlockTokens); }
  const std::vector<PagedKv>& layers() const { return layers_; }

  // Queued on the device's stream, like all work there: host memory is the stream's until it is synchronised.

  // Copies the contents of `from` into the first blocks of `to`, which has at least as many.
  void Copy(const BlockTable& from, const BlockTable& to);
  // Contents to and from host memory: `bytes` bytes from `offset` on of the table's blocks in their order,
  // block_bytes() each; within a block, layer by layer, keys before values.
  void Read(const BlockTable& table, int64_t offset, int64_t bytes, void* host);
  void Write(const BlockTable& table, int64_t offset, int64_t bytes, const void* host);

 private:
  friend class BlockTable;
  KvPool() = default;
  template <class F>
  void ForEachPart(const BlockTable& table, int64_t offset, int64_t bytes, F&& part) const;

  Device* device_ = nullptr;
  PagedSpec spec_;
  int64_t num_blocks_ = 0;
  DeviceBuffer buffer_;
  std::vector<PagedKv> layers_;
  std::vector<int32_t> free_;
};

}  // namespace weir
