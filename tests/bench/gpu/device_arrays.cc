#include "tests/bench/gpu/device_arrays.h"

#include <algorithm>
#include <random>

#include "runtime/ops/attention/attention.h"

namespace weir::bench {
namespace {

constexpr int64_t kPattern = (1 << 18) - 5;  // elements; odd, so that rows differ

template <class T>
std::vector<T> Pattern(int64_t count, float low, float high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(low, high);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& x : values) {
    if constexpr (std::is_same_v<T, float>)
      x = value(random);
    else
      x = T::FromFloat(value(random));
  }
  return values;
}

}  // namespace

void DeviceArrays::Upload(const void* host, int64_t bytes, void* device) {
  if (!status_.ok()) return;
  device_.stream().CopyToDevice(device, host, bytes);
  status_ = device_.stream().Synchronize();
}

TensorView DeviceArrays::Zeros(DType dtype, std::initializer_list<int64_t> shape) {
  if (!status_.ok()) return {};
  TensorView view(nullptr, dtype, shape);
  absl::StatusOr<DeviceBuffer> buffer =
      device_.Allocate(view.num_elements() * static_cast<int64_t>(DTypeBytes(dtype)));
  if (!buffer.ok()) {
    status_ = buffer.status();
    return {};
  }
  buffers_.push_back(*std::move(buffer));
  return view.On(buffers_.back().data());
}

TensorView DeviceArrays::Values(DType dtype, std::initializer_list<int64_t> shape, float low, float high) {
  const TensorView view = Zeros(dtype, shape);
  if (!status_.ok()) return {};
  const auto element = static_cast<int64_t>(DTypeBytes(dtype));
  const int64_t count = std::min(kPattern, view.num_elements());
  if (dtype == DType::kBF16)
    Upload(Pattern<BF16>(count, low, high).data(), count * element, view.raw());
  else
    Upload(Pattern<float>(count, low, high).data(), count * element, view.raw());
  auto* const bytes = static_cast<std::byte*>(view.raw());
  for (int64_t filled = count; filled < view.num_elements(); filled *= 2)
    device_.stream().CopyOnDevice(bytes + filled * element, bytes,
                                  std::min(filled, view.num_elements() - filled) * element);
  if (status_.ok()) status_ = device_.stream().Synchronize();
  return view;
}

RaggedBatch DeviceArrays::Batch(int sequences, int tokens, int64_t position) {
  std::vector<int32_t> cu_seqlens(static_cast<size_t>(sequences) + 1), slots(static_cast<size_t>(sequences));
  for (int n = 0; n < sequences; ++n) {
    slots[static_cast<size_t>(n)] = n;
    cu_seqlens[static_cast<size_t>(n) + 1] = (n + 1) * tokens;
  }
  RaggedBatch batch;
  batch.num_seqs = sequences;
  batch.num_tokens = sequences * tokens;
  batch.max_seq_tokens = tokens;
  batch.cu_seqlens = Of(cu_seqlens);
  batch.slots = Of(slots);
  batch.positions = Of(std::vector<int64_t>(static_cast<size_t>(sequences), position));
  return batch;
}

int64_t DeviceArrays::BlocksOf(int sequences, int tokens, int64_t position) {
  return sequences * ((position + tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

RaggedBatch DeviceArrays::PagedBatch(int sequences, int tokens, int64_t position) {
  RaggedBatch batch = Batch(sequences, tokens, position);
  const int64_t blocks = BlocksOf(1, tokens, position);
  std::vector<int32_t> table(static_cast<size_t>(sequences * blocks));
  for (int n = 0; n < sequences; ++n)
    for (int64_t i = 0; i < blocks; ++i)
      table[static_cast<size_t>(n * blocks + i)] = static_cast<int32_t>(i * sequences + n);
  const TensorView ids = Of(table);
  if (status_.ok()) batch.block_tables = TensorView(ids.raw(), DType::kI32, {sequences, blocks});
  batch.max_positions = position + tokens;
  return batch;
}

}  // namespace weir::bench
