// The selective scan on NVIDIA GPUs. A block owns some channels of one run; a thread four rows of their
// state, which it keeps in registers from the first token to the last. So the state makes one trip from
// memory and back: for a single token (decode) 8 bytes an element, beside which A comes from the L2 cache and
// u, dt, z and y are little. Each element of state and y is one chain of operations in an order that depends
// on state_dim alone, so it has the same bits for one token and for many, whatever the widths of loads and
// blocks.
#include "runtime/device/cuda_launch.cuh"
#include "runtime/device/cuda_ptx.cuh"
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/selective_scan/selective_scan_cuda.h"
#include "runtime/ops/stage_rows.cuh"

namespace weir {
namespace {

constexpr int kQuad = 4;  // rows of a thread
constexpr int kMinThreads = 128;
constexpr int kMaxThreads = 512;
constexpr int kMinColumnThreads = 4;
constexpr int kMaxStagedTokens = 16;
constexpr size_t kSharedFloats = 12 * 1024;  // so that several blocks share an SM
// With fewer blocks than this a thread takes one channel rather than four, for four times the blocks.
constexpr int64_t kManyBlocks = 512;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLeastNormal = 1.17549435e-38f;  // less counts as zero
constexpr float kLinearSoftplus = 20.0f;         // from here on softplus(x) is x

// How channels are cut into blocks and threads: thread (group, c) holds rows [4 group, 4 group + 4) of kVec
// channels.
struct BlockShape {
  int groups;  // a power of two, by state_dim alone
  int column_threads;
  int columns;  // channels of a block, a power of two
  int column_bits;
  int blocks;             // of a run
  int rows;               // state_dim in whole quads
  int tokens;             // staged at once
  int buffers;            // 2 where the next tokens are staged while these are worked on
  bool aligned_channels;  // u, dt and z can be copied 16 bytes at a time
  bool aligned_rows;      // b and c

  __host__ __device__ int threads() const { return groups * column_threads; }
  __host__ __device__ int StageFloats() const { return tokens * (3 * columns + 2 * rows); }
  __host__ __device__ size_t SharedFloats() const {
    return static_cast<size_t>(buffers) * StageFloats() +
           static_cast<size_t>(tokens) * columns * (2 + groups);
  }
};

// One buffer of staged tokens.
struct StagedTokens {
  float* u;   // [tokens][columns]
  float* dt;  // [tokens][columns]
  float* z;   // [tokens][columns]
  float* b;   // [tokens][rows]
  float* c;   // [tokens][rows]
};
struct Working {
  float* delta;    // [tokens][columns]
  float* delta_u;  // [tokens][columns]
  float* partial;  // [tokens][groups][columns]
};

// Some channels of one run.
struct Work {
  int64_t first, tokens;  // rows
  int column;             // the block's first channel
  int width;              // channels of the block that exist
};

__device__ StagedTokens StageAt(const BlockShape& shape, int buffer) {
  StagedTokens stage;
  stage.u = DynamicShared<float>() + buffer * shape.StageFloats();
  stage.dt = stage.u + shape.tokens * shape.columns;
  stage.z = stage.dt + shape.tokens * shape.columns;
  stage.b = stage.z + shape.tokens * shape.columns;
  stage.c = stage.b + shape.tokens * shape.rows;
  return stage;
}

__device__ Working WorkingOf(const BlockShape& shape) {
  Working working;
  working.delta = DynamicShared<float>() + shape.buffers * shape.StageFloats();
  working.delta_u = working.delta + shape.tokens * shape.columns;
  working.partial = working.delta_u + shape.tokens * shape.columns;
  return working;
}

__device__ int Thread() { return static_cast<int>(threadIdx.x); }

// Begins to bring tokens [t, t + count) of the run in.
__device__ void StageTokens(const CudaScan& s, const BlockShape& shape, const Work& work, int64_t t,
                            int count, const StagedTokens& stage) {
  const int64_t row = work.first + t;
  const auto channels = [&](float* to, const float* from, int64_t stride) {
    StageRows(to, shape.columns, from + row * stride + work.column, stride, count, work.width,
              shape.aligned_channels);
  };
  channels(stage.dt, s.dt, s.dt_stride);
  channels(stage.u, s.u, s.u_stride);
  if (s.z != nullptr) channels(stage.z, s.z, s.z_stride);
  StageRows(stage.b, shape.rows, s.b + row * s.b_stride, s.b_stride, count, s.state_dim, shape.aligned_rows);
  StageRows(stage.c, shape.rows, s.c + row * s.c_stride, s.c_stride, count, s.state_dim, shape.aligned_rows);
  CpAsyncCommit();
}

__device__ float Softplus(float x) { return x > kLinearSoftplus ? x : log1pf(expf(x)); }

// Calls body(i, token, channel of the block) for the threads' shares of the staged tokens.
template <class Body>
__device__ __forceinline__ void ForTokenChannels(const BlockShape& shape, const Work& work, int count,
                                                 const Body& body) {
  for (int i = Thread(); i < count * shape.columns; i += shape.threads()) {
    const int c = i & (shape.columns - 1);
    if (c < work.width) body(i, i >> shape.column_bits, c);
  }
}

// Step sizes, once for all rows of a channel.
__device__ void ComputeSteps(const CudaScan& s, const BlockShape& shape, const Work& work, int count,
                             const StagedTokens& stage, const Working& working) {
  ForTokenChannels(shape, work, count, [&](int i, int, int c) {
    const float bias = s.dt_bias == nullptr ? 0.0f : s.dt_bias[work.column + c];
    const float delta = Softplus(__fadd_rn(stage.dt[i], bias));
    working.delta[i] = delta;
    working.delta_u[i] = __fmul_rn(delta, stage.u[i]);
  });
}

// D u and the groups' sums in their order, times the gate. y may be an input: each of its elements was read
// into the stage before.
__device__ void WriteOutputs(const CudaScan& s, const BlockShape& shape, const Work& work, int64_t t,
                             int count, const StagedTokens& stage, const Working& working) {
  ForTokenChannels(shape, work, count, [&](int i, int token, int c) {
    const float* const partial = working.partial + token * shape.groups * shape.columns + c;
    float y = __fmul_rn(s.d[work.column + c], stage.u[i]);
#pragma unroll 4
    for (int group = 0; group < shape.groups; ++group) y = __fadd_rn(y, partial[group * shape.columns]);
    if (s.z != nullptr) {
      const float z = stage.z[i];
      y = __fmul_rn(y, z / (1.0f + expf(-z)));
    }
    s.y[(work.first + t + token) * s.y_stride + work.column + c] = y;
  });
}

// A thread's part of the state, and of A · log2 e.
template <int kVec>
struct ScanState {
  float h[kQuad][kVec] = {};
  float a[kQuad][kVec] = {};

  __device__ __forceinline__ void Load(const CudaScan& s, int row, const float* state_at, const float* a_at) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (row + i >= s.state_dim) break;
      LoadLanes(state_at + static_cast<int64_t>(i) * s.channels, h[i]);
      LoadLanes(a_at + i * s.a_stride, a[i]);
    }
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
#pragma unroll
      for (int c = 0; c < kVec; ++c) a[i][c] = __fmul_rn(a[i][c], kLog2E);
  }

  __device__ __forceinline__ void Store(const CudaScan& s, int row, float* state_at) const {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (row + i >= s.state_dim) break;
      StoreLanes(h[i], state_at + static_cast<int64_t>(i) * s.channels);
    }
  }

  // One token; sum: the thread's part of Σ C h. b, c: the token's, at the thread's first row.
  __device__ __forceinline__ void Step(int rows, const float* b, const float* c, const float (&delta)[kVec],
                                       const float (&delta_u)[kVec], float (&sum)[kVec]) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i >= rows) break;
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float decay = exp2f(__fmul_rn(delta[j], a[i][j]));
        const float next = __fmaf_rn(decay, h[i][j], __fmul_rn(delta_u[j], b[i]));
        h[i][j] = fabsf(next) < kLeastNormal ? 0.0f : next;  // NaN stays NaN
        sum[j] = __fmaf_rn(c[i], h[i][j], sum[j]);
      }
    }
  }
};

// grid: runs · blocks of a run.
template <int kVec>
__global__ void __launch_bounds__(kMaxThreads) ScanKernel(CudaScan s, BlockShape shape) {
  const int n = static_cast<int>(blockIdx.x) / shape.blocks;
  Work work;
  work.first = s.cu_seqlens[n];
  work.tokens = s.cu_seqlens[n + 1] - work.first;
  if (work.tokens == 0) return;
  work.column = (static_cast<int>(blockIdx.x) - n * shape.blocks) * shape.columns;
  work.width = s.channels - work.column < shape.columns ? s.channels - work.column : shape.columns;
  const int group = Thread() / shape.column_threads;
  const int own_column = (Thread() % shape.column_threads) * kVec;  // of the block's
  const int row = group * kQuad;
  const int rows = s.state_dim - row < kQuad ? s.state_dim - row : kQuad;  // below 1: none
  const bool active = own_column < work.width;
  const Working working = WorkingOf(shape);

  float* const state_at = s.state + s.slots[n] * s.state_stride + static_cast<int64_t>(row) * s.channels +
                          work.column + own_column;
  ScanState<kVec> state;
  if (active) state.Load(s, row, state_at, s.a + row * s.a_stride + work.column + own_column);

  const auto count_at = [&](int64_t t) {
    return static_cast<int>(work.tokens - t < shape.tokens ? work.tokens - t : shape.tokens);
  };
  int buffer = 0;
  StageTokens(s, shape, work, 0, count_at(0), StageAt(shape, 0));
  for (int64_t begin = 0; begin < work.tokens; begin += shape.tokens) {
    const int count = count_at(begin);
    const StagedTokens stage = StageAt(shape, buffer);
    CpAsyncWait<0>();
    __syncthreads();
    if (begin + shape.tokens < work.tokens) {
      buffer ^= 1;
      StageTokens(s, shape, work, begin + shape.tokens, count_at(begin + shape.tokens),
                  StageAt(shape, buffer));
    }
    ComputeSteps(s, shape, work, count, stage, working);
    __syncthreads();
    if (active) {
#pragma unroll 2
      for (int t = 0; t < count; ++t) {
        float delta[kVec];
        float delta_u[kVec];
        float sum[kVec] = {};
        LoadLanes(working.delta + t * shape.columns + own_column, delta);
        LoadLanes(working.delta_u + t * shape.columns + own_column, delta_u);
        state.Step(rows, stage.b + t * shape.rows + row, stage.c + t * shape.rows + row, delta, delta_u, sum);
        StoreLanes(sum, working.partial + (t * shape.groups + group) * shape.columns + own_column);
      }
    }
    __syncthreads();
    WriteOutputs(s, shape, work, begin, count, stage, working);
  }
  if (active) state.Store(s, row, state_at);
}

BlockShape ShapeOf(const CudaScan& s, int vec, int max_seq_tokens) {
  BlockShape shape{};
  shape.rows = (s.state_dim + kQuad - 1) / kQuad * kQuad;
  shape.groups = 1;
  while (shape.groups * kQuad < s.state_dim) shape.groups *= 2;
  shape.column_threads = kMinThreads / shape.groups;
  if (shape.column_threads < kMinColumnThreads) shape.column_threads = kMinColumnThreads;
  shape.columns = shape.column_threads * vec;
  while (1 << shape.column_bits < shape.columns) ++shape.column_bits;
  shape.blocks = (s.channels + shape.columns - 1) / shape.columns;
  shape.aligned_channels = s.channels % 4 == 0 && Aligned16(s.u, s.u_stride) &&
                           Aligned16(s.dt, s.dt_stride) && Aligned16(s.z, s.z_stride);
  shape.aligned_rows = s.state_dim % 4 == 0 && Aligned16(s.b, s.b_stride) && Aligned16(s.c, s.c_stride);
  shape.tokens = max_seq_tokens < kMaxStagedTokens ? max_seq_tokens : kMaxStagedTokens;
  shape.buffers = max_seq_tokens > 1 ? 2 : 1;
  while (shape.tokens > 1 && shape.SharedFloats() > kSharedFloats) --shape.tokens;
  return shape;
}

}  // namespace

void LaunchCudaScan(const CudaScan& s, int num_seqs, int max_seq_tokens, cudaStream_t stream) {
  if (num_seqs == 0 || max_seq_tokens == 0) return;
  const bool aligned =
      s.channels % 4 == 0 && Aligned16(s.state, s.state_stride) && Aligned16(s.a, s.a_stride);
  const BlockShape wide = ShapeOf(s, 4, max_seq_tokens);
  const bool vector = aligned && static_cast<int64_t>(num_seqs) * wide.blocks >= kManyBlocks;
  const BlockShape shape = vector ? wide : ShapeOf(s, 1, max_seq_tokens);
  LaunchCuda(vector ? ScanKernel<4> : ScanKernel<1>, dim3(static_cast<unsigned>(num_seqs * shape.blocks)),
             dim3(static_cast<unsigned>(shape.threads())), shape.SharedFloats() * sizeof(float), stream, s,
             shape);
}

}  // namespace weir
