// Stores keys and values in the paged pool. A block takes 32 tokens and 32 dimensions of one KV head: keys
// turn in shared memory, so that neighbouring positions of a run are written side by side. Moves 8 bytes in
// and two pool elements out per element of a head; a lone token's keys lie 64 elements apart and cost a
// 32-byte sector each.
#include <cuda_fp16.h>

#include "runtime/device/cuda_launch.cuh"
#include "runtime/ops/attention/attention_cuda.h"
#include "runtime/ops/cuda_rows.cuh"

namespace weir {
namespace {

constexpr int kTile = 32;  // tokens, dimensions, lanes
constexpr int kWarps = 4;
constexpr int kBlockTokens = 64;  // of the pool

struct F32 {
  using Element = float;
  static __device__ float Round(float x) { return x; }
};
// Both keep the bits of BF16::FromFloat and F16::FromFloat.
struct Bf16Bits {
  using Element = uint16_t;
  static __device__ uint16_t Round(float x) {
    const uint32_t u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};
struct F16Bits {
  using Element = uint16_t;
  static __device__ uint16_t Round(float x) {
    const uint32_t u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16 & 0x8000u) | 0x7e00u);
    return __half_as_ushort(__float2half_rn(x));
  }
};

struct Shared {
  float k[kTile][kTile + 1];
  int64_t block[kTile];  // of each token; below 0: no token
  int in_block[kTile];
};

template <class Type>
__global__ void __launch_bounds__(kWarps* kTile) WriteKernel(CudaKvWrite w) {
  using Element = typename Type::Element;
  Shared& shared = StaticShared<Shared>();
  const int lane = static_cast<int>(threadIdx.x) % kTile;
  const int warp = static_cast<int>(threadIdx.x) / kTile;
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int head_dim = w.kv.head_dim;
  const int chunks = (head_dim + kTile - 1) / kTile;
  const int head = static_cast<int>(blockIdx.y) / chunks;
  const int dim = static_cast<int>(blockIdx.y) % chunks * kTile;
  const int num_tokens = min(w.batch.num_tokens, w.batch.cu_seqlens[w.batch.num_seqs]);
  if (warp == 0) {
    const int token = first + lane;
    shared.block[lane] = -1;
    if (token < num_tokens) {
      const int run = FindRun(w.batch.cu_seqlens, w.batch.num_seqs, token);
      const int64_t position = w.batch.positions[run] + token - w.batch.cu_seqlens[run];
      shared.block[lane] = w.batch.block_tables[run * w.batch.table_stride + position / kBlockTokens];
      shared.in_block[lane] = static_cast<int>(position % kBlockTokens);
    }
  }
  __syncthreads();
  const int64_t column = static_cast<int64_t>(head) * head_dim + dim + lane;
  const bool exists = dim + lane < head_dim;
  for (int i = warp; i < kTile; i += kWarps) {
    if (shared.block[i] < 0 || !exists) continue;
    shared.k[i][lane] = w.k[(first + i) * w.k_stride + column];
    auto* const values = static_cast<Element*>(w.kv.values) + shared.block[i] * w.kv.value_stride;
    values[(static_cast<int64_t>(head) * kBlockTokens + shared.in_block[i]) * head_dim + dim + lane] =
        Type::Round(w.v[(first + i) * w.v_stride + column]);
  }
  __syncthreads();
  if (shared.block[lane] < 0) return;
  auto* const keys = static_cast<Element*>(w.kv.keys) + shared.block[lane] * w.kv.key_stride +
                     static_cast<int64_t>(head) * head_dim * kBlockTokens + shared.in_block[lane];
  for (int i = warp; i < min(kTile, head_dim - dim); i += kWarps)
    keys[(dim + i) * kBlockTokens] = Type::Round(shared.k[lane][i]);
}

}  // namespace

void LaunchCudaKvWrite(const CudaKvWrite& write, cudaStream_t stream) {
  const auto windows = static_cast<unsigned>((write.batch.num_tokens + kTile - 1) / kTile);
  const auto chunks = static_cast<unsigned>((write.kv.head_dim + kTile - 1) / kTile);
  if (windows == 0 || write.batch.num_seqs == 0) return;
  void (*kernel)(CudaKvWrite) = WriteKernel<F32>;
  if (write.kv.type == CudaKvType::kF16) kernel = WriteKernel<F16Bits>;
  if (write.kv.type == CudaKvType::kBF16) kernel = WriteKernel<Bf16Bits>;
  const dim3 grid(windows, chunks * static_cast<unsigned>(write.kv.num_kv_heads));
  LaunchCuda(kernel, grid, dim3(kWarps * kTile), 0, stream, write);
}

}  // namespace weir
