#include "runtime/state/kv_pool.h"

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

template <class F>
void KvPool::ForEachPart(int32_t block, F&& part) const {
  const int64_t bytes = block_bytes() / (2 * spec_.num_layers);
  for (const PagedKv& layer : layers_) {
    part(static_cast<std::byte*>(layer.keys.raw()) + block * bytes, bytes);
    part(static_cast<std::byte*>(layer.values.raw()) + block * bytes, bytes);
  }
}

void KvPool::Copy(const BlockTable& from, const BlockTable& to) {
  WEIR_CHECK(to.blocks().size() >= from.blocks().size());
  const int64_t bytes = from.blocks().empty() ? 0 : block_bytes() / (2 * spec_.num_layers);
  for (size_t i = 0; i < from.blocks().size(); ++i) {
    for (const PagedKv& layer : layers_) {
      for (const TensorView& plane : {layer.keys, layer.values}) {
        std::byte* base = static_cast<std::byte*>(plane.raw());
        device_->stream().CopyOnDevice(base + to.blocks()[i] * bytes, base + from.blocks()[i] * bytes, bytes);
      }
    }
  }
}

void KvPool::Read(const BlockTable& table, int64_t num_blocks, std::byte* host) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    ForEachPart(table.blocks()[i], [&](std::byte* data, int64_t bytes) {
      device_->stream().CopyToHost(host, data, bytes);
      host += bytes;
    });
  }
}

void KvPool::Write(const BlockTable& table, int64_t num_blocks, const std::byte* host) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    ForEachPart(table.blocks()[i], [&](std::byte* data, int64_t bytes) {
      device_->stream().CopyToDevice(data, host, bytes);
      host += bytes;
    });
  }
}

}  // namespace weir
