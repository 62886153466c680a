// The linear recurrence on NVIDIA GPUs. A block owns 32 columns of one state head of one run: a lane is a
// column, and the rows go round the warps. Two forms with the same bits: a step streams the state through
// registers once; a run keeps its part of the state in registers from its first token to its last.
#include "runtime/device/cuda_launch.cuh"
#include "runtime/ops/linear_recurrence/linear_recurrence_cuda.h"

namespace weir {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLanes = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kLanes;
constexpr int kQueryTile = 4;  // sums that a thread keeps at once

// The block's working memory, in floats.
struct Shared {
  float* k;        // [state_dim]
  float* q;        // [queries][state_dim]
  float* z_inner;  // [state_dim], this block's own copy: AdvanceNormalizer writes the real one afterwards
  float* z_outer;  // [state_dim]
  float* partial;  // [kWarps][queries][kLanes]
  float* factor;   // [queries]
};

__host__ __device__ constexpr size_t SharedFloats(int state_dim, int queries) {
  return static_cast<size_t>(queries + 3) * state_dim + static_cast<size_t>(kWarps * kLanes + 1) * queries;
}

__device__ Shared Layout(const CudaRecurrence& r) {
  Shared shared;
  shared.k = DynamicShared<float>();
  shared.q = shared.k + r.state_dim;
  shared.z_inner = shared.q + r.queries * r.state_dim;
  shared.z_outer = shared.z_inner + r.state_dim;
  shared.partial = shared.z_outer + r.state_dim;
  shared.factor = shared.partial + kWarps * r.queries * kLanes;
  return shared;
}

// Where a block works.
struct Place {
  int head, lane, warp, column;
  bool active;  // the column exists
  int64_t first, tokens, position;
  int64_t s_inner, s_outer;  // element (0, column) of the state
};

__device__ Place Locate(const CudaRecurrence& r) {
  Place p;
  const int n = static_cast<int>(blockIdx.z);
  p.head = static_cast<int>(blockIdx.y);
  p.lane = static_cast<int>(threadIdx.x) % kLanes;
  p.warp = static_cast<int>(threadIdx.x) / kLanes;
  p.column = static_cast<int>(blockIdx.x) * kLanes + p.lane;
  p.active = p.column < r.head_dim;
  p.first = r.cu_seqlens[n];
  p.tokens = r.cu_seqlens[n + 1] - p.first;
  p.position = r.positions[n];
  const int64_t in_slot = static_cast<int64_t>(p.head) * r.state_dim * r.head_dim + p.column;
  p.s_inner = r.slots[n] * r.s_inner_stride + in_slot;
  p.s_outer = r.slots[n] * r.s_outer_stride + in_slot;
  return p;
}

__device__ bool FoldIsDue(const CudaRecurrence& r, int64_t position) {
  return position > 0 && position % r.fold_tokens == 0;
}

__device__ void LoadNormalizer(const CudaRecurrence& r, const Place& p, const Shared& shared) {
  if (r.z_inner == nullptr) return;
  const int64_t slot = r.slots[blockIdx.z];
  for (int i = static_cast<int>(threadIdx.x); i < r.state_dim; i += kThreads) {
    shared.z_inner[i] = r.z_inner[slot * r.z_inner_stride + p.head * r.state_dim + i];
    shared.z_outer[i] = r.z_outer[slot * r.z_outer_stride + p.head * r.state_dim + i];
  }
}

// Brings token t's k and q in, and moves the normaliser on. Ends with a barrier.
__device__ void LoadToken(const CudaRecurrence& r, const Place& p, int64_t t, bool fold,
                          const Shared& shared) {
  const int64_t token = p.first + t;
  const float* k = r.k + token * r.k_stride + p.head * r.state_dim;
  const float* q = r.q + token * r.q_stride + static_cast<int64_t>(p.head) * r.queries * r.state_dim;
  for (int i = static_cast<int>(threadIdx.x); i < r.state_dim; i += kThreads) {
    const float ki = k[i];
    shared.k[i] = ki;
    if (r.z_inner == nullptr) continue;
    if (fold) {
      shared.z_outer[i] = __fadd_rn(shared.z_outer[i], shared.z_inner[i]);
      shared.z_inner[i] = 0.0f;
    }
    shared.z_inner[i] = __fadd_rn(shared.z_inner[i], ki);
  }
  for (int i = static_cast<int>(threadIdx.x); i < r.queries * r.state_dim; i += kThreads) shared.q[i] = q[i];
  __syncthreads();
}

// What each query head's sums are multiplied by; one warp a query. No barrier.
__device__ void ComputeFactors(const CudaRecurrence& r, const Place& p, const Shared& shared) {
  for (int query = p.warp; query < r.queries; query += kWarps) {
    float factor = r.scale;
    if (r.z_inner != nullptr) {
      float dot = 0.0f;
      for (int i = p.lane; i < r.state_dim; i += kLanes)
        dot = __fmaf_rn(shared.q[query * r.state_dim + i], __fadd_rn(shared.z_inner[i], shared.z_outer[i]),
                        dot);
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2)
        dot = __fadd_rn(dot, __shfl_xor_sync(kAllLanes, dot, offset));
      factor = 1.0f / (dot + r.eps);
    }
    if (p.lane == 0) shared.factor[query] = factor;
  }
}

// Adds the warps' sums in a fixed order and writes the token's outputs. Between two barriers.
__device__ void WriteOutputs(const CudaRecurrence& r, const Place& p, int64_t t, const Shared& shared) {
  __syncthreads();
  float* o = r.o + (p.first + t) * r.o_stride + static_cast<int64_t>(p.head) * r.queries * r.head_dim;
  for (int query = p.warp; query < r.queries; query += kWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      sum = __fadd_rn(sum, shared.partial[(warp * r.queries + query) * kLanes + p.lane]);
    if (p.active) o[query * r.head_dim + p.column] = __fmul_rn(sum, shared.factor[query]);
  }
  __syncthreads();
}

// Any state_dim; each token reads S_outer and reads and writes S_inner in global memory.
__global__ void __launch_bounds__(kThreads) StepKernel(CudaRecurrence r) {
  const Shared shared = Layout(r);
  const Place p = Locate(r);
  LoadNormalizer(r, p, shared);
  for (int64_t t = 0; t < p.tokens; ++t) {
    const bool fold = FoldIsDue(r, p.position + t);
    LoadToken(r, p, t, fold, shared);
    ComputeFactors(r, p, shared);
    const float v = p.active ? r.v[(p.first + t) * r.v_stride + p.head * r.head_dim + p.column] : 0.0f;
    for (int base = 0; base < r.queries; base += kQueryTile) {
      float sum[kQueryTile] = {};
#pragma unroll 4
      for (int i = p.warp; i < r.state_dim; i += kWarps) {
        float inner = 0.0f;
        float outer = 0.0f;
        if (p.active) {
          float* const inner_at = r.s_inner + p.s_inner + static_cast<int64_t>(i) * r.head_dim;
          float* const outer_at = r.s_outer + p.s_outer + static_cast<int64_t>(i) * r.head_dim;
          inner = *inner_at;
          outer = *outer_at;
          if (base == 0) {  // later query heads read what this pass wrote
            if (fold) {
              outer = __fadd_rn(outer, inner);
              inner = 0.0f;
              *outer_at = outer;
            }
            inner = __fmaf_rn(shared.k[i], v, inner);
            *inner_at = inner;
          }
        }
        const float value = __fadd_rn(inner, outer);
#pragma unroll
        for (int j = 0; j < kQueryTile; ++j)
          if (base + j < r.queries) sum[j] = __fmaf_rn(shared.q[(base + j) * r.state_dim + i], value, sum[j]);
      }
#pragma unroll
      for (int j = 0; j < kQueryTile; ++j)
        if (base + j < r.queries) shared.partial[(p.warp * r.queries + base + j) * kLanes + p.lane] = sum[j];
    }
    WriteOutputs(r, p, t, shared);
  }
}

// state_dim up to kRows * kWarps. Same sums in the same order as StepKernel.
template <int kRows>
__global__ void __launch_bounds__(kThreads) RunKernel(CudaRecurrence r) {
  const Shared shared = Layout(r);
  const Place p = Locate(r);
  LoadNormalizer(r, p, shared);
  float inner[kRows];
  float outer[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int i = p.warp + j * kWarps;
    const bool exists = p.active && i < r.state_dim;
    inner[j] = exists ? r.s_inner[p.s_inner + static_cast<int64_t>(i) * r.head_dim] : 0.0f;
    outer[j] = exists ? r.s_outer[p.s_outer + static_cast<int64_t>(i) * r.head_dim] : 0.0f;
  }
  bool folded = false;
  for (int64_t t = 0; t < p.tokens; ++t) {
    const bool fold = FoldIsDue(r, p.position + t);
    folded = folded || fold;
    LoadToken(r, p, t, fold, shared);
    ComputeFactors(r, p, shared);
    const float v = p.active ? r.v[(p.first + t) * r.v_stride + p.head * r.head_dim + p.column] : 0.0f;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int i = p.warp + j * kWarps;
      if (i >= r.state_dim) break;
      if (fold) {
        outer[j] = __fadd_rn(outer[j], inner[j]);
        inner[j] = 0.0f;
      }
      inner[j] = __fmaf_rn(shared.k[i], v, inner[j]);
    }
    for (int query = 0; query < r.queries; ++query) {
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const int i = p.warp + j * kWarps;
        if (i >= r.state_dim) break;
        sum = __fmaf_rn(shared.q[query * r.state_dim + i], __fadd_rn(inner[j], outer[j]), sum);
      }
      shared.partial[(p.warp * r.queries + query) * kLanes + p.lane] = sum;
    }
    WriteOutputs(r, p, t, shared);
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int i = p.warp + j * kWarps;
    if (!p.active || i >= r.state_dim) continue;
    r.s_inner[p.s_inner + static_cast<int64_t>(i) * r.head_dim] = inner[j];
    if (folded) r.s_outer[p.s_outer + static_cast<int64_t>(i) * r.head_dim] = outer[j];
  }
}

// z after the run, once all blocks have read z before it: the same additions as in LoadToken. A thread owns
// one element. grid: (elements, heads, runs).
__global__ void __launch_bounds__(kThreads) AdvanceNormalizer(CudaRecurrence r) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= r.state_dim) return;
  const int head = static_cast<int>(blockIdx.y);
  const int n = static_cast<int>(blockIdx.z);
  const int64_t first = r.cu_seqlens[n];
  const int64_t tokens = r.cu_seqlens[n + 1] - first;
  const int64_t slot = r.slots[n];
  float* const inner_at = r.z_inner + slot * r.z_inner_stride + head * r.state_dim + i;
  float* const outer_at = r.z_outer + slot * r.z_outer_stride + head * r.state_dim + i;
  float inner = *inner_at;
  float outer = *outer_at;
  for (int64_t t = 0; t < tokens; ++t) {
    if (FoldIsDue(r, r.positions[n] + t)) {
      outer = __fadd_rn(outer, inner);
      inner = 0.0f;
    }
    inner = __fadd_rn(inner, r.k[(first + t) * r.k_stride + head * r.state_dim + i]);
  }
  *inner_at = inner;
  *outer_at = outer;
}

}  // namespace

void LaunchCudaRecurrence(const CudaRecurrence& r, int num_seqs, int num_kv_heads, int max_seq_tokens,
                          cudaStream_t stream) {
  const size_t shared_bytes = SharedFloats(r.state_dim, r.queries) * sizeof(float);
  if (num_seqs == 0 || max_seq_tokens == 0) return;
  const auto heads = static_cast<unsigned>(num_kv_heads);
  const auto seqs = static_cast<unsigned>(num_seqs);
  const dim3 grid(static_cast<unsigned>((r.head_dim + kLanes - 1) / kLanes), heads, seqs);
  void (*kernel)(CudaRecurrence) = StepKernel;
  if (max_seq_tokens > 1) {
    if (r.state_dim <= 16 * kWarps)
      kernel = RunKernel<16>;
    else if (r.state_dim <= 32 * kWarps)
      kernel = RunKernel<32>;
    else if (r.state_dim <= 64 * kWarps)
      kernel = RunKernel<64>;
  }
  LaunchCuda(kernel, grid, dim3(kThreads), shared_bytes, stream, r);
  if (r.z_inner != nullptr) {
    const dim3 z_grid(static_cast<unsigned>((r.state_dim + kThreads - 1) / kThreads), heads, seqs);
    LaunchCuda(AdvanceNormalizer, z_grid, dim3(kThreads), 0, stream, r);
  }
}

}  // namespace weir
