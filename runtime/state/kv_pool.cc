#include "runtime/state/kv_pool.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace weir {

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this != &other) {
    Truncate(0);
    pool_ = std::exchange(other.pool_, nullptr);
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

bool BlockTable::Reserve(KvPool* pool, int64_t num_tokens) {
  const int64_t wanted = KvPool::BlocksFor(num_tokens) - static_cast<int64_t>(blocks_.size());
  if (wanted <= 0) return true;
  if (wanted > pool->num_free()) return false;
  pool_ = pool;
  for (int64_t i = 0; i < wanted; ++i) {
    blocks_.push_back(pool->free_.back());
    pool->free_.pop_back();
  }
  return true;
}

void BlockTable::Truncate(int64_t num_tokens) {
  const auto keep = static_cast<size_t>(KvPool::BlocksFor(num_tokens));
  while (blocks_.size() > keep) {
    pool_->free_.push_back(blocks_.back());
    blocks_.pop_back();
  }
}

absl::StatusOr<KvPool> KvPool::Create(const PagedSpec& spec, int64_t num_blocks, Device& device) {
  KvPool pool;
  pool.device_ = &device;
  pool.spec_ = spec;
  pool.num_blocks_ = spec.num_layers == 0 ? 0 : num_blocks;
  WEIR_ASSIGN_OR_RETURN(pool.buffer_, device.Allocate(pool.block_bytes() * pool.num_blocks_));
  if (pool.num_blocks_ == 0) return pool;
  const int64_t plane = pool.buffer_.bytes() / (2 * spec.num_layers);
  std::byte* data = pool.buffer_.data();
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    PagedKv kv;
    kv.keys =
        TensorView(data, spec.dtype, {pool.num_blocks_, spec.num_kv_heads, spec.head_dim, kKvBlockTokens});
    kv.values = TensorView(data + plane, spec.dtype,
                           {pool.num_blocks_, spec.num_kv_heads, kKvBlockTokens, spec.head_dim});
    pool.layers_.push_back(kv);
    data += 2 * plane;
  }
  pool.free_.reserve(pool.num_blocks_);
  for (int64_t i = pool.num_blocks_ - 1; i >= 0; --i) pool.free_.push_back(static_cast<int32_t>(i));
  return pool;
}

// part(device pointer, bytes) for each stretch of device memory in the range, in order.
template <class F>
void KvPool::ForEachPart(const BlockTable& table, int64_t offset, int64_t bytes, F&& part) const {
  if (bytes == 0) return;
  const auto num_blocks = static_cast<int64_t>(table.blocks().size());
  WEIR_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= num_blocks * block_bytes());
  const int64_t plane_bytes = block_bytes() / (2 * spec_.num_layers);
  while (bytes > 0) {
    const int64_t block = table.blocks()[static_cast<size_t>(offset / block_bytes())];
    const int64_t plane = offset % block_bytes() / plane_bytes;
    const int64_t at = offset % plane_bytes;
    const int64_t count = std::min(bytes, plane_bytes - at);
    const PagedKv& layer = layers_[static_cast<size_t>(plane / 2)];
    const TensorView& tensor = plane % 2 == 0 ? layer.keys : layer.values;
    part(static_cast<std::byte*>(tensor.raw()) + block * plane_bytes + at, count);
    offset += count;
    bytes -= count;
  }
}

void KvPool::Copy(const BlockTable& from, const BlockTable& to) {
  WEIR_CHECK(to.blocks().size() >= from.blocks().size());
  const int64_t bytes = from.blocks().empty() ? 0 : block_bytes() / (2 * spec_.num_layers);
  const std::vector<int32_t>& source = from.blocks();
  const std::vector<int32_t>& target = to.blocks();
  for (size_t i = 0, count = 0; i < source.size(); i += count) {
    // Blocks that lie side by side in both tables are one copy: what a copy costs to queue counts on a GPU.
    const auto adjacent = [&](size_t n) {
      const auto offset = static_cast<int32_t>(n);
      return source[i + n] == source[i] + offset && target[i + n] == target[i] + offset;
    };
    for (count = 1; i + count < source.size() && adjacent(count);) ++count;
    for (const PagedKv& layer : layers_) {
      for (const TensorView& plane : {layer.keys, layer.values}) {
        std::byte* base = static_cast<std::byte*>(plane.raw());
        device_->stream().CopyOnDevice(base + target[i] * bytes, base + source[i] * bytes,
                                       static_cast<int64_t>(count) * bytes);
      }
    }
  }
}

void KvPool::Read(const BlockTable& table, int64_t offset, int64_t bytes, void* host) {
  auto* out = static_cast<std::byte*>(host);
  ForEachPart(table, offset, bytes, [&](std::byte* data, int64_t count) {
    device_->stream().CopyToHost(out, data, count);
    out += count;
  });
}

void KvPool::Write(const BlockTable& table, int64_t offset, int64_t bytes, const void* host) {
  const auto* in = static_cast<const std::byte*>(host);
  ForEachPart(table, offset, bytes, [&](std::byte* data, int64_t count) {
    device_->stream().CopyToDevice(data, in, count);
    in += count;
  });
}

}  // namespace weir
