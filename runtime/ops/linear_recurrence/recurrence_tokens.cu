// The linear recurrence token by token. A block owns some columns of one state head of one run and keeps them
// in registers from the first token to the last, so the state makes one trip from memory and back: for a
// single token (decode) 4 bytes in and 4 out an element of S_inner and 4 in of S_outer, beside which q, k, v
// and o are little. Outputs are sums over the state's rows in an order that depends on state_dim alone, so
// they have the same bits for one token and for many, whatever the widths of loads and blocks.
#include "runtime/device/cuda_launch.cuh"
#include "runtime/device/cuda_ptx.cuh"
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/linear_recurrence/linear_recurrence_cuda.h"
#include "runtime/ops/linear_recurrence/recurrence_common.cuh"
#include "runtime/ops/stage_rows.cuh"

namespace weir {
namespace {

constexpr int kQuad = 4;      // rows that lie together in a thread
constexpr int kMaxQuads = 4;  // of a thread
constexpr int kMinGroups = 8;
constexpr int kMaxThreads = 256;
constexpr int kMaxStagedTokens = 8;
constexpr size_t kSharedFloats = 12 * 1024;  // so that several blocks share an SM

// How a head is cut into blocks and threads. Thread (group, c) holds the rows of the quads group, group +
// groups, ... of kVec columns.
struct TokensTile {
  int groups;          // of quads; by state_dim alone
  int column_threads;  // a power of two; with the groups a multiple of 32 threads
  int columns;         // of a block
  int blocks;          // of a head
  int rows;            // state_dim in whole quads
  int tokens;          // staged at once
  int buffers;         // 2 where the next tokens are staged while these are worked on
  bool aligned;        // q, k and v can be copied 16 bytes at a time

  __host__ __device__ int threads() const { return groups * column_threads; }
  // One buffer: k, q, v and the decay of each token.
  __host__ __device__ int StageFloats(int queries) const {
    return tokens * ((1 + queries) * rows + columns + kQuad);
  }
  __host__ __device__ size_t SharedFloats(int queries) const {
    return static_cast<size_t>(buffers) * StageFloats(queries) + static_cast<size_t>(2 + tokens) * rows +
           static_cast<size_t>(tokens) * queries * (groups * columns + 1);
  }
};

// One buffer of staged tokens, and the block's working memory, in floats.
struct TokensStage {
  float* k;      // [tokens][rows]
  float* q;      // [tokens][queries][rows]
  float* v;      // [tokens][columns]
  float* decay;  // [tokens]
};
struct TokensScratch {
  float* z_inner;  // [rows]
  float* z_outer;  // [rows]
  float* z;        // [tokens][rows], their sum after each token
  float* partial;  // [tokens][queries][groups][columns]
  float* factor;   // [tokens][queries]
};

__device__ TokensStage StageAt(const CudaRecurrence& r, const TokensTile& tile, int buffer) {
  TokensStage stage;
  stage.k = DynamicShared<float>() + buffer * tile.StageFloats(r.queries);
  stage.q = stage.k + tile.tokens * tile.rows;
  stage.v = stage.q + tile.tokens * r.queries * tile.rows;
  stage.decay = stage.v + tile.tokens * tile.columns;
  return stage;
}

__device__ TokensScratch ScratchOf(const CudaRecurrence& r, const TokensTile& tile) {
  TokensScratch scratch;
  scratch.z_inner = DynamicShared<float>() + tile.buffers * tile.StageFloats(r.queries);
  scratch.z_outer = scratch.z_inner + tile.rows;
  scratch.z = scratch.z_outer + tile.rows;
  scratch.partial = scratch.z + tile.tokens * tile.rows;
  scratch.factor = scratch.partial + tile.tokens * r.queries * tile.groups * tile.columns;
  return scratch;
}

__device__ int Thread() { return static_cast<int>(threadIdx.x); }

// Begins to bring tokens [t, t + count) of the run in.
__device__ void StageTokens(const CudaRecurrence& r, const TokensTile& tile, const RecurrenceRun& run,
                            int column, int64_t t, int count, const TokensStage& stage) {
  StageRows(stage.k, tile.rows, KeysOf(r, run) + t * r.k_stride, r.k_stride, count, r.state_dim,
            tile.aligned);
  for (int query = 0; query < r.queries; ++query)
    StageRows(stage.q + query * tile.rows, r.queries * tile.rows,
              QueriesOf(r, run) + query * r.state_dim + t * r.q_stride, r.q_stride, count, r.state_dim,
              tile.aligned);
  const int left = r.head_dim - column;
  StageRows(stage.v, tile.columns,
            r.v + (run.first + t) * r.v_stride + static_cast<int64_t>(run.head) * r.head_dim + column,
            r.v_stride, count, left < tile.columns ? left : tile.columns, tile.aligned);
  for (int i = Thread(); i < count; i += tile.threads()) stage.decay[i] = DecayOf(r, run, t + i);
  CpAsyncCommit();
}

// z through the staged tokens, the sum of its levels after each kept. A thread owns the elements it moves.
__device__ void StepNormalizer(const CudaRecurrence& r, const TokensTile& tile, const TokensStage& stage,
                               const TokensScratch& scratch, int count, int64_t to_fold) {
  for (int i = Thread(); i < r.state_dim; i += tile.threads()) {
    float inner = scratch.z_inner[i];
    float outer = scratch.z_outer[i];
    for (int t = 0; t < count; ++t) {
      AdvanceNormalizer(inner, outer, t == to_fold, stage.decay[t]);
      inner = __fadd_rn(inner, stage.k[t * tile.rows + i]);
      scratch.z[t * tile.rows + i] = __fadd_rn(inner, outer);
    }
    scratch.z_inner[i] = inner;
    scratch.z_outer[i] = outer;
  }
}

// What the outputs of each token and query head are multiplied by; one warp computes one.
__device__ void ComputeFactors(const CudaRecurrence& r, const TokensTile& tile, const TokensStage& stage,
                               const TokensScratch& scratch, int count) {
  const int lane = Thread() % kWarpLanes;
  for (int i = Thread() / kWarpLanes; i < count * r.queries; i += tile.threads() / kWarpLanes) {
    float factor = r.scale;
    if (r.z_inner != nullptr) {
      const float* const q = stage.q + i * tile.rows;
      const float* const z = scratch.z + i / r.queries * tile.rows;
      float dot = 0.0f;
      for (int row = lane; row < r.state_dim; row += kWarpLanes) dot = __fmaf_rn(q[row], z[row], dot);
      dot = WarpSum(dot);
      factor = 1.0f / (dot + r.eps);
    }
    if (lane == 0) scratch.factor[i] = factor;
  }
}

// Adds the groups' sums in their order and writes the outputs of the staged tokens from `t` on.
__device__ void WriteOutputs(const CudaRecurrence& r, const TokensTile& tile, const RecurrenceRun& run,
                             int column, int64_t t, int count, const TokensScratch& scratch) {
  for (int i = Thread(); i < count * r.queries * tile.columns; i += tile.threads()) {
    const int output = i / tile.columns;  // token and query head
    const int c = i - output * tile.columns;
    if (column + c >= r.head_dim) continue;
    const float* const partial = scratch.partial + output * tile.groups * tile.columns + c;
    float sum = 0.0f;
#pragma unroll 8
    for (int group = 0; group < tile.groups; ++group) sum = __fadd_rn(sum, partial[group * tile.columns]);
    const int token = output / r.queries;
    const int query = output - token * r.queries;
    float* const o = r.o + (run.first + t + token) * r.o_stride +
                     static_cast<int64_t>(run.head * r.queries + query) * r.head_dim;
    o[column + c] = __fmul_rn(sum, scratch.factor[output]);
  }
}

// A thread's part of the state. Rows beyond state_dim are zero and stay so.
template <int kVec, int kQuads, bool kTwoLevels>
struct StateTile {
  float inner[kQuads * kQuad][kVec];
  float outer[kTwoLevels ? kQuads * kQuad : 1][kVec];

  // Calls body(n, row) for the thread's row n < kQuads * kQuad that is the state's row `row`.
  template <class Body>
  __device__ __forceinline__ static void ForRows(const CudaRecurrence& r, int groups, int group,
                                                 const Body& body) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const int row = (group + j * groups) * kQuad + i;
        if (row < r.state_dim) body(j * kQuad + i, row);
      }
    }
  }

  __device__ __forceinline__ void Load(const CudaRecurrence& r, int groups, int group, bool active,
                                       const float* inner_at, const float* outer_at) {
#pragma unroll
    for (int n = 0; n < kQuads * kQuad; ++n) {
#pragma unroll
      for (int c = 0; c < kVec; ++c) {
        inner[n][c] = 0.0f;
        if constexpr (kTwoLevels) outer[n][c] = 0.0f;
      }
    }
    if (!active) return;
    ForRows(r, groups, group, [&](int n, int row) {
      LoadLanes(inner_at + static_cast<int64_t>(row) * r.head_dim, inner[n]);
      if constexpr (kTwoLevels) LoadLanes(outer_at + static_cast<int64_t>(row) * r.head_dim, outer[n]);
    });
  }

  __device__ __forceinline__ void Store(const CudaRecurrence& r, int groups, int group, bool outer_changed,
                                        float* inner_at, float* outer_at) const {
    ForRows(r, groups, group, [&](int n, int row) {
      StoreLanes(inner[n], inner_at + static_cast<int64_t>(row) * r.head_dim);
      if constexpr (kTwoLevels)
        if (outer_changed) StoreLanes(outer[n], outer_at + static_cast<int64_t>(row) * r.head_dim);
    });
  }

  __device__ __forceinline__ void Fold() {
    if constexpr (kTwoLevels) {
#pragma unroll
      for (int n = 0; n < kQuads * kQuad; ++n) {
#pragma unroll
        for (int c = 0; c < kVec; ++c) {
          outer[n][c] = __fadd_rn(outer[n][c], inner[n][c]);
          inner[n][c] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void Scale(float decay) {
#pragma unroll
    for (int n = 0; n < kQuads * kQuad; ++n) {
#pragma unroll
      for (int c = 0; c < kVec; ++c) {
        inner[n][c] = Decayed(inner[n][c], decay);
        if constexpr (kTwoLevels) outer[n][c] = Decayed(outer[n][c], decay);
      }
    }
  }

  // Four values of a token's k or q; zeros beyond state_dim, which only odd shapes (kVec 1) have in a quad.
  __device__ __forceinline__ static void LoadQuad(const CudaRecurrence& r, const float* values, int row,
                                                  float (&x)[kQuad]) {
    if constexpr (kVec == 4) {
      LoadLanes<kQuad>(values + row, x);
    } else {
#pragma unroll
      for (int i = 0; i < kQuad; ++i) x[i] = row + i < r.state_dim ? values[row + i] : 0.0f;
    }
  }

  __device__ __forceinline__ void Add(const CudaRecurrence& r, int groups, int group, const float* k,
                                      const float (&v)[kVec]) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const int row = (group + j * groups) * kQuad;
      if (row >= r.state_dim) break;
      float x[kQuad];
      LoadQuad(r, k, row, x);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        if (kVec == 1 && row + i >= r.state_dim) continue;  // infinite values of v must not reach the zeros
#pragma unroll
        for (int c = 0; c < kVec; ++c)
          inner[j * kQuad + i][c] = __fmaf_rn(x[i], v[c], inner[j * kQuad + i][c]);
      }
    }
  }

  // The thread's part of φ(q)ᵀ S.
  __device__ __forceinline__ void Read(const CudaRecurrence& r, int groups, int group, const float* q,
                                       float (&sum)[kVec]) const {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const int row = (group + j * groups) * kQuad;
      if (row >= r.state_dim) break;
      float x[kQuad];
      LoadQuad(r, q, row, x);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
#pragma unroll
        for (int c = 0; c < kVec; ++c) {
          float value = inner[j * kQuad + i][c];
          if constexpr (kTwoLevels) value = __fadd_rn(value, outer[j * kQuad + i][c]);
          sum[c] = __fmaf_rn(x[i], value, sum[c]);
        }
      }
    }
  }
};

__device__ void MoveNormalizer(const CudaRecurrence& r, const TokensTile& tile, const RecurrenceRun& run,
                               const TokensScratch& scratch, bool load) {
  float* const inner = StateOf(r.z_inner, r.z_inner_stride, run, r.state_dim);
  float* const outer = StateOf(r.z_outer, r.z_outer_stride, run, r.state_dim);
  if (inner == nullptr) return;
  for (int i = Thread(); i < r.state_dim; i += tile.threads()) {
    if (load) {
      scratch.z_inner[i] = inner[i];
      scratch.z_outer[i] = outer == nullptr ? 0.0f : outer[i];
    } else {
      inner[i] = scratch.z_inner[i];
      if (outer != nullptr) outer[i] = scratch.z_outer[i];
    }
  }
}

// Blocks on an SM at least; where a thread holds 64 floats of state or more, two might not fit.
constexpr int MinBlocks(int vec, int quads, bool two_levels) {
  return vec * quads * (two_levels ? 2 : 1) >= 16 ? 1 : 2;
}

// grid: (runs · blocks of a head, heads).
template <int kVec, int kQuads, bool kTwoLevels>
__global__ void __launch_bounds__(kMaxThreads, MinBlocks(kVec, kQuads, kTwoLevels))
    TokensKernel(CudaRecurrence r, TokensTile tile, RecurrencePart part) {
  const int n = static_cast<int>(blockIdx.x) / tile.blocks;
  const RecurrenceRun run = RunOf(r, n, static_cast<int>(blockIdx.y), part);
  if (run.tokens == 0) return;
  const int group = Thread() / tile.column_threads;
  const int own_column = (Thread() % tile.column_threads) * kVec;  // of the block's
  const int column = (static_cast<int>(blockIdx.x) - n * tile.blocks) * tile.columns;
  const bool active = column + own_column < r.head_dim;
  const TokensScratch scratch = ScratchOf(r, tile);

  const int64_t elements = static_cast<int64_t>(r.state_dim) * r.head_dim;
  float* const inner_at = StateOf(r.s_inner, r.s_inner_stride, run, elements) + column + own_column;
  float* const outer_at =
      kTwoLevels ? StateOf(r.s_outer, r.s_outer_stride, run, elements) + column + own_column : nullptr;
  StateTile<kVec, kQuads, kTwoLevels> state;
  state.Load(r, tile.groups, group, active, inner_at, outer_at);
  MoveNormalizer(r, tile, run, scratch, /*load=*/true);

  const auto count_at = [&](int64_t t) {
    return static_cast<int>(run.tokens - t < tile.tokens ? run.tokens - t : tile.tokens);
  };
  int64_t to_fold = TokensToFold(r, run.position);
  bool outer_changed = false;
  int buffer = 0;
  StageTokens(r, tile, run, column, 0, count_at(0), StageAt(r, tile, 0));
  for (int64_t begin = 0; begin < run.tokens; begin += tile.tokens) {
    const int count = count_at(begin);
    const TokensStage stage = StageAt(r, tile, buffer);
    CpAsyncWait<0>();
    __syncthreads();
    if (begin + tile.tokens < run.tokens) {
      buffer ^= 1;
      StageTokens(r, tile, run, column, begin + tile.tokens, count_at(begin + tile.tokens),
                  StageAt(r, tile, buffer));
    }
    if (r.z_inner != nullptr) {
      StepNormalizer(r, tile, stage, scratch, count, to_fold);
      __syncthreads();
    }
    ComputeFactors(r, tile, stage, scratch, count);
    for (int t = 0; t < count; ++t) {
      const float decay = stage.decay[t];
      if (t == to_fold) state.Fold();
      if (decay != 1.0f) state.Scale(decay);
      outer_changed = outer_changed || t == to_fold || decay != 1.0f;
      float v[kVec] = {};
      if (active) LoadLanes(stage.v + t * tile.columns + own_column, v);
      state.Add(r, tile.groups, group, stage.k + t * tile.rows, v);
      for (int query = 0; query < r.queries; ++query) {
        const int output = t * r.queries + query;
        float sum[kVec] = {};
        state.Read(r, tile.groups, group, stage.q + output * tile.rows, sum);
        StoreLanes(sum, scratch.partial + (output * tile.groups + group) * tile.columns + own_column);
      }
    }
    to_fold = to_fold >= count ? to_fold - count : to_fold + r.fold_tokens - count;
    __syncthreads();
    WriteOutputs(r, tile, run, column, begin, count, scratch);
  }
  if (active) state.Store(r, tile.groups, group, outer_changed, inner_at, outer_at);
  if (tile.blocks == 1) MoveNormalizer(r, tile, run, scratch, /*load=*/false);
}

// z after the run where several blocks share a head, once all of them have read z before it: the same
// operations as in StepNormalizer. A thread owns one element. grid: (runs · blocks of `blocks` elements,
// heads).
__global__ void __launch_bounds__(kMaxThreads)
    NormalizerKernel(CudaRecurrence r, int blocks, RecurrencePart part) {
  const int n = static_cast<int>(blockIdx.x) / blocks;
  const int i = (static_cast<int>(blockIdx.x) - n * blocks) * kMaxThreads + Thread();
  const RecurrenceRun run = RunOf(r, n, static_cast<int>(blockIdx.y), part);
  if (i >= r.state_dim || run.tokens == 0) return;
  float* const inner_at = StateOf(r.z_inner, r.z_inner_stride, run, r.state_dim) + i;
  float* const outer_at =
      r.z_outer == nullptr ? nullptr : StateOf(r.z_outer, r.z_outer_stride, run, r.state_dim) + i;
  const float* const k = KeysOf(r, run) + i;
  float inner = *inner_at;
  float outer = outer_at == nullptr ? 0.0f : *outer_at;
  int64_t fold = TokensToFold(r, run.position);
#pragma unroll 4
  for (int64_t t = 0; t < run.tokens; ++t) {
    AdvanceNormalizer(inner, outer, t == fold, DecayOf(r, run, t));
    if (t == fold) fold += r.fold_tokens;
    inner = __fadd_rn(inner, k[t * r.k_stride]);
  }
  *inner_at = inner;
  if (outer_at != nullptr) *outer_at = outer;
}

using KernelFunction = void (*)(CudaRecurrence, TokensTile, RecurrencePart);

template <int kVec, bool kTwoLevels>
KernelFunction ForQuads(int quads) {
  if (quads == 1) return TokensKernel<kVec, 1, kTwoLevels>;
  if (quads == 2) return TokensKernel<kVec, 2, kTwoLevels>;
  return TokensKernel<kVec, 4, kTwoLevels>;
}

// Whether rows of four columns can be loaded at once. It depends on the model alone, not on the batch.
bool StateIsAligned(const CudaRecurrence& r) {
  return r.state_dim % 4 == 0 && r.head_dim % 4 == 0 && Aligned16(r.s_inner, r.s_inner_stride) &&
         Aligned16(r.s_outer, r.s_outer_stride);
}

TokensTile TileOf(const CudaRecurrence& r, int vec, int max_seq_tokens) {
  TokensTile tile{};
  tile.rows = (r.state_dim + kQuad - 1) / kQuad * kQuad;
  tile.groups = kMinGroups;
  while (tile.groups * kMaxQuads * kQuad < r.state_dim) tile.groups *= 2;
  tile.column_threads = 1;
  while (tile.groups * tile.column_threads < kMaxThreads &&
         (tile.groups * tile.column_threads < kWarpLanes || tile.column_threads * vec < r.head_dim))
    tile.column_threads *= 2;
  tile.columns = tile.column_threads * vec;
  tile.blocks = (r.head_dim + tile.columns - 1) / tile.columns;
  tile.aligned = r.state_dim % 4 == 0 && r.head_dim % 4 == 0 && tile.columns % 4 == 0 &&
                 Aligned16(r.q, r.q_stride) && Aligned16(r.k, r.k_stride) && Aligned16(r.v, r.v_stride);
  tile.tokens = max_seq_tokens < kMaxStagedTokens ? max_seq_tokens : kMaxStagedTokens;
  tile.buffers = max_seq_tokens > 1 ? 2 : 1;
  while (tile.tokens > 1 && tile.SharedFloats(r.queries) > kSharedFloats) --tile.tokens;
  return tile;
}

void LaunchTokens(const CudaRecurrence& r, int num_seqs, int max_seq_tokens, RecurrencePart part,
                  cudaStream_t stream) {
  const int vec = StateIsAligned(r) ? 4 : 1;
  const TokensTile tile = TileOf(r, vec, max_seq_tokens);
  const int quads = (tile.rows / kQuad + tile.groups - 1) / tile.groups;
  const bool two_levels = r.s_outer != nullptr;
  const KernelFunction kernel = vec == 4
                                    ? (two_levels ? ForQuads<4, true>(quads) : ForQuads<4, false>(quads))
                                    : (two_levels ? ForQuads<1, true>(quads) : ForQuads<1, false>(quads));
  const auto heads = static_cast<unsigned>(r.num_kv_heads);
  const dim3 grid(static_cast<unsigned>(num_seqs * tile.blocks), heads);
  LaunchCuda(kernel, grid, dim3(static_cast<unsigned>(tile.threads())),
             tile.SharedFloats(r.queries) * sizeof(float), stream, r, tile, part);
  if (r.z_inner == nullptr || tile.blocks == 1) return;
  const int blocks = (r.state_dim + kMaxThreads - 1) / kMaxThreads;
  LaunchCuda(NormalizerKernel, dim3(static_cast<unsigned>(num_seqs * blocks), heads), dim3(kMaxThreads), 0,
             stream, r, blocks, part);
}

}  // namespace

// Two buffers, and the widest blocks. The kernel of whole chunks needs less than every GPU has.
size_t CudaRecurrenceSharedBytes(const CudaRecurrence& r) {
  const int vec = r.state_dim % 4 == 0 && r.head_dim % 4 == 0 ? 4 : 1;
  return TileOf(r, vec, kMaxStagedTokens).SharedFloats(r.queries) * sizeof(float);
}

void LaunchCudaRecurrence(const CudaRecurrence& r, int num_seqs, int max_seq_tokens, cudaStream_t stream) {
  if (num_seqs == 0 || max_seq_tokens == 0) return;
  if (max_seq_tokens < kRecurrenceChunk || !RecurrenceHasChunks(r))
    return LaunchTokens(r, num_seqs, max_seq_tokens, RecurrencePart::kAll, stream);
  LaunchTokens(r, num_seqs, max_seq_tokens, RecurrencePart::kBefore, stream);
  LaunchRecurrenceChunks(r, num_seqs, stream);
  LaunchTokens(r, num_seqs, max_seq_tokens, RecurrencePart::kAfter, stream);
}

}  // namespace weir
