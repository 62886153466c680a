// Whole chunks of the linear recurrence as tensor-core products: with A_t the product of the decays up to and
// with token t of the chunk, O = (diag(A) Q S + (tril(Q Kᵀ) ∘ A_t / A_s) V) · factor,  S ← A_C S + (A_C / A_s
// Kᵀ) V. A block of 8 warps takes 64 columns of one state head of one run through all its whole chunks and
// keeps their state in registers as Sᵀ, whose layout after Sᵀ += Vᵀ K is that of an operand of Q S. Warp w
// has columns 16 (w % 4) … + 15 and, of each inner dimension, half w / 4; the halves' outputs are added at
// the end. A number is two bf16 ones, high + low, and a product three: their error is that of the part which
// low does not hold, 2⁻¹⁸ of a number at most (kCudaChunkNmse).
#include <cuda_bf16.h>

#include "runtime/device/cuda_launch.cuh"
#include "runtime/device/cuda_ptx.cuh"
#include "runtime/ops/linear_recurrence/linear_recurrence_cuda.h"
#include "runtime/ops/linear_recurrence/recurrence_common.cuh"
#include "runtime/ops/stage_rows.cuh"

namespace weir {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLanes = 32;
constexpr int kThreads = 256;
constexpr int kTokens = kRecurrenceChunk;
constexpr int kColumns = 64;        // of a block
constexpr int kExchangePitch = 72;  // floats; rows of four pairs fall on different banks

// Rows of bf16 numbers in shared memory, the 16-byte pieces of a row exchanged so that eight rows of one
// column of pieces fall on different banks.
template <int kWidth>
struct SplitTile {
  uint16_t* high;
  uint16_t* low;

  static constexpr int kElements = kTokens * kWidth;
  __device__ __forceinline__ static int At(int row, int column) {
    return row * kWidth + (((column >> 3) ^ (row & 7)) << 3) + (column & 7);
  }
  __device__ __forceinline__ float Value(int row, int column) const {
    const int at = At(row, column);
    return __uint_as_float(static_cast<uint32_t>(high[at]) << 16) +
           __uint_as_float(static_cast<uint32_t>(low[at]) << 16);
  }
};

// Two numbers, high parts and low parts, the first in the lower half.
struct SplitPair {
  uint32_t high, low;
};

__device__ __forceinline__ uint32_t Bits(__nv_bfloat162 pair) {
  return static_cast<uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}

__device__ __forceinline__ SplitPair Split(float x, float y) {
  const __nv_bfloat162 high = __floats2bfloat162_rn(x, y);
  const float2 rounded = __bfloat1622float2(high);
  return {Bits(high), Bits(__floats2bfloat162_rn(x - rounded.x, y - rounded.y))};
}

// d += a b, the products of the low parts left out.
__device__ __forceinline__ void MmaSplit(float (&d)[4], const uint32_t (&a_high)[4],
                                         const uint32_t (&a_low)[4], const uint32_t (&b_high)[2],
                                         const uint32_t (&b_low)[2]) {
  MmaBf16(d, a_low, b_high);
  MmaBf16(d, a_high, b_low);
  MmaBf16(d, a_high, b_high);
}

template <int kState>
struct ChunkShared {
  SplitTile<kState> k, q;
  SplitTile<kColumns> v;
  SplitTile<kTokens> weights;  // tril(Q Kᵀ) ∘ A_t / A_s
  float* exchange;             // [kTokens][kExchangePitch], in the place of q and weights
  float* log_high;             // [kTokens]: the logarithm of A_t in two parts
  float* log_low;
  float* from_start;  // [kTokens]: A_t
  float* to_end;      // [kTokens]: A_C / A_t
  float* own;         // [2][kTokens]: sums of the weights' halves
  float* before;      // [kTokens]: φ(q)ᵀ z with z before the chunk
  float* z;           // [kState]

  static constexpr size_t kBytes =
      (2 * SplitTile<kState>::kElements + SplitTile<kColumns>::kElements + SplitTile<kTokens>::kElements) *
          2 * sizeof(uint16_t) +
      (7 * kTokens + kState) * sizeof(float);
};
static_assert(SplitTile<64>::kElements * 8 >= kTokens * kExchangePitch * 4);
static_assert(ChunkShared<128>::kBytes <= 99 * 1024);

template <int kState>
__device__ ChunkShared<kState> SharedOf() {
  ChunkShared<kState> s;
  uint16_t* at = DynamicShared<uint16_t>();
  const auto take = [&](auto& tile, int elements) {
    tile.high = at;
    tile.low = at + elements;
    at += 2 * elements;
  };
  take(s.k, s.k.kElements);
  take(s.v, s.v.kElements);
  s.exchange = reinterpret_cast<float*>(at);
  take(s.q, s.q.kElements);
  take(s.weights, s.weights.kElements);
  float* f = reinterpret_cast<float*>(at);
  for (float** array : {&s.log_high, &s.log_low, &s.from_start, &s.to_end, &s.before, &s.own}) {
    *array = f;
    f += kTokens;
  }
  s.z = f + kTokens;
  return s;
}

__device__ int Thread() { return static_cast<int>(threadIdx.x); }
__device__ int Lane() { return Thread() % kLanes; }
__device__ int Warp() { return Thread() / kLanes; }

// kTokens rows of `width` floats, zeros beyond them. aligned: rows begin at 16-byte borders.
template <int kWidth>
__device__ void LoadTile(const SplitTile<kWidth>& tile, const float* from, int64_t stride, int width,
                         bool aligned) {
#pragma unroll 2
  for (int i = Thread(); i < kTokens * kWidth / 4; i += kThreads) {
    const int row = i / (kWidth / 4);
    const int column = i % (kWidth / 4) * 4;
    const float* const source = from + row * stride + column;
    float x[4] = {};
    if (aligned && column + 4 <= width) {
      const float4 v = *reinterpret_cast<const float4*>(source);
      x[0] = v.x;
      x[1] = v.y;
      x[2] = v.z;
      x[3] = v.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (column + j < width) x[j] = source[j];
    }
    const SplitPair first = Split(x[0], x[1]);
    const SplitPair second = Split(x[2], x[3]);
    const int at = tile.At(row, column);
    *reinterpret_cast<uint2*>(tile.high + at) = make_uint2(first.high, second.high);
    *reinterpret_cast<uint2*>(tile.low + at) = make_uint2(first.low, second.low);
  }
}

// A_t from the sums of logarithms, taken in double so that the difference of two large ones is exact enough.
// By the first warp, two tokens a lane.
template <int kState>
__device__ void ComputeDecay(const CudaRecurrence& r, const RecurrenceRun& run, int64_t token,
                             const ChunkShared<kState>& s) {
  if (Warp() != 0) return;
  const int t = 2 * Lane();
  double own[2] = {};
  if (r.log_decay != nullptr)
    for (int i = 0; i < 2; ++i) own[i] = static_cast<double>(LogDecay(r, run, token + t + i));
  double sum = own[0] + own[1];
#pragma unroll
  for (int offset = 1; offset < kLanes; offset *= 2) {
    const double below = __shfl_up_sync(kAllLanes, sum, offset);
    if (Lane() >= offset) sum += below;
  }
  const double below = __shfl_up_sync(kAllLanes, sum, 1);
  const double total = __shfl_sync(kAllLanes, sum, kLanes - 1);
  double log = Lane() == 0 ? 0.0 : below;
  for (int i = 0; i < 2; ++i) {
    log = t + i == kTokens - 1 ? total : log + own[i];
    s.log_high[t + i] = static_cast<float>(log);
    s.log_low[t + i] = static_cast<float>(log - static_cast<double>(s.log_high[t + i]));
    s.from_start[t + i] = expf(static_cast<float>(log));
    s.to_end[t + i] = expf(static_cast<float>(total - log));
  }
}

// The four 8x8 matrices of a 16x16 operand A at (row, column): as they lie, or of the transposed tile (then
// row and column are those of the operand).
template <int kWidth>
__device__ __forceinline__ void LoadA(const SplitTile<kWidth>& tile, int row, int column, uint32_t (&high)[4],
                                      uint32_t (&low)[4]) {
  const int at = tile.At(row + Lane() % 16, column + Lane() / 16 * 8);
  LdMatrix4(high, tile.high + at);
  LdMatrix4(low, tile.low + at);
}
template <int kWidth>
__device__ __forceinline__ void LoadATransposed(const SplitTile<kWidth>& tile, int row, int column,
                                                uint32_t (&high)[4], uint32_t (&low)[4]) {
  const int at = tile.At(column + Lane() % 8 + Lane() / 16 * 8, row + Lane() / 8 % 2 * 8);
  LdMatrix4Trans(high, tile.high + at);
  LdMatrix4Trans(low, tile.low + at);
}

// Operand B of 16 rows and 16 columns, two of 8, from a tile that holds its transpose (rows are B's columns).
template <int kWidth>
__device__ __forceinline__ void LoadBTransposed(const SplitTile<kWidth>& tile, int row, int column,
                                                uint32_t (&high)[2][2], uint32_t (&low)[2][2]) {
  const int at = tile.At(column + Lane() % 8 + Lane() / 16 * 8, row + Lane() / 8 % 2 * 8);
  uint32_t x[4];
  LdMatrix4(x, tile.high + at);
  for (int i = 0; i < 4; ++i) high[i / 2][i % 2] = x[i];
  LdMatrix4(x, tile.low + at);
  for (int i = 0; i < 4; ++i) low[i / 2][i % 2] = x[i];
}
// The same from a tile that lies as B does.
template <int kWidth>
__device__ __forceinline__ void LoadB(const SplitTile<kWidth>& tile, int row, int column,
                                      uint32_t (&high)[2][2], uint32_t (&low)[2][2]) {
  const int at = tile.At(row + Lane() % 16, column + Lane() / 16 * 8);
  uint32_t x[4];
  LdMatrix4Trans(x, tile.high + at);
  for (int i = 0; i < 4; ++i) high[i / 2][i % 2] = x[i];
  LdMatrix4Trans(x, tile.low + at);
  for (int i = 0; i < 4; ++i) low[i / 2][i % 2] = x[i];
}

// 16 rows of the weights of 32 tokens each warp, and their sums.
template <int kState>
__device__ void ComputeWeights(const ChunkShared<kState>& s) {
  const int row = Warp() % 4 * 16;
  const int half = Warp() / 4;
  const int g = Lane() / 4;
  const int pair = Lane() % 4 * 2;
  float own[2] = {};
  if (half * 32 <= row) {  // else all of these tokens come later
    float sum[4][4] = {};
#pragma unroll 1
    for (int i = 0; i < kState; i += 16) {
      uint32_t a_high[4], a_low[4];
      LoadA(s.q, row, i, a_high, a_low);
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        uint32_t b_high[2][2], b_low[2][2];
        LoadBTransposed(s.k, i, half * 32 + n * 8, b_high, b_low);
        MmaSplit(sum[n], a_high, a_low, b_high[0], b_low[0]);
        MmaSplit(sum[n + 1], a_high, a_low, b_high[1], b_low[1]);
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int column = half * 32 + n * 8 + pair;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int t = row + g + 8 * i;
        float weight[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float log = (s.log_high[t] - s.log_high[column + j]) + (s.log_low[t] - s.log_low[column + j]);
          weight[j] = column + j <= t ? __fmul_rn(sum[n][2 * i + j], expf(log)) : 0.0f;
          own[i] = __fadd_rn(own[i], weight[j]);
        }
        const SplitPair split = Split(weight[0], weight[1]);
        const int at = s.weights.At(t, column);
        *reinterpret_cast<uint32_t*>(s.weights.high + at) = split.high;
        *reinterpret_cast<uint32_t*>(s.weights.low + at) = split.low;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    own[i] = __fadd_rn(own[i], __shfl_xor_sync(kAllLanes, own[i], 1));
    own[i] = __fadd_rn(own[i], __shfl_xor_sync(kAllLanes, own[i], 2));
    if (pair == 0) s.own[half * kTokens + row + g + 8 * i] = own[i];
  }
}

// φ(q)ᵀ z for eight tokens a warp.
template <int kState>
__device__ void ComputeBefore(const ChunkShared<kState>& s) {
  for (int t = Warp(); t < kTokens; t += kThreads / kLanes) {
    float dot = 0.0f;
    for (int i = Lane(); i < kState; i += kLanes) dot = __fmaf_rn(s.q.Value(t, i), s.z[i], dot);
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2)
      dot = __fadd_rn(dot, __shfl_xor_sync(kAllLanes, dot, offset));
    if (Lane() == 0) s.before[t] = dot;
  }
}

// A warp's part of Sᵀ: 16 columns of S as rows, half of its rows as columns; element as in MmaBf16's D.
template <int kState, bool kTwoLevels>
struct ChunkState {
  static constexpr int kTiles = kState / 16;  // of 8 columns
  float inner[kTiles][4];
  float outer[kTwoLevels ? kTiles : 1][4];

  // Calls body(tile, element, row of S, column of S) for what exists. column: the block's first.
  template <class Body>
  __device__ __forceinline__ static void ForElements(const CudaRecurrence& r, int column, const Body& body) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = Warp() / 4 * (kState / 2) + n * 8 + Lane() % 4 * 2 + e % 2;
        const int j = column + Warp() % 4 * 16 + Lane() / 4 + e / 2 * 8;
        if (i < r.state_dim && j < r.head_dim) body(n, e, static_cast<int64_t>(i) * r.head_dim + j);
      }
    }
  }

  __device__ __forceinline__ void Load(const CudaRecurrence& r, int column, const float* s_inner,
                                       const float* s_outer) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        inner[n][e] = 0.0f;
        if constexpr (kTwoLevels) outer[n][e] = 0.0f;
      }
    ForElements(r, column, [&](int n, int e, int64_t at) {
      inner[n][e] = s_inner[at];
      if constexpr (kTwoLevels) outer[n][e] = s_outer[at];
    });
  }

  __device__ __forceinline__ void Store(const CudaRecurrence& r, int column, bool outer_changed,
                                        float* s_inner, float* s_outer) const {
    ForElements(r, column, [&](int n, int e, int64_t at) {
      s_inner[at] = inner[n][e];
      if constexpr (kTwoLevels)
        if (outer_changed) s_outer[at] = outer[n][e];
    });
  }

  // What moves inner into outer and decays both is what does it to z.
  __device__ __forceinline__ void Advance(bool fold, float decay) {
    float none = 0.0f;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (kTwoLevels)
          AdvanceNormalizer(inner[n][e], outer[n][e], fold, decay);
        else
          AdvanceNormalizer(inner[n][e], none, false, decay);
      }
  }

  __device__ __forceinline__ float Value(int n, int e) const {
    if constexpr (kTwoLevels)
      return __fadd_rn(inner[n][e], outer[n][e]);
    else
      return inner[n][e];
  }

  // out += Q S over the warp's rows of S. out: [16-token tile][8-column tile].
  __device__ __forceinline__ void Read(const SplitTile<kState>& q, float (&out)[4][2][4]) const {
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b_high[2][2], b_low[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const SplitPair split = Split(Value(n + j, 2 * i), Value(n + j, 2 * i + 1));
          b_high[i][j] = split.high;
          b_low[i][j] = split.low;
        }
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        uint32_t a_high[4], a_low[4];
        LoadA(q, m * 16, Warp() / 4 * (kState / 2) + n * 8, a_high, a_low);
        for (int i = 0; i < 2; ++i) MmaSplit(out[m][i], a_high, a_low, b_high[i], b_low[i]);
      }
    }
  }

  // Sᵀ += Vᵀ K.
  __device__ __forceinline__ void Add(const SplitTile<kColumns>& v, const SplitTile<kState>& k) {
#pragma unroll 1
    for (int t = 0; t < kTokens; t += 16) {
      uint32_t a_high[4], a_low[4];
      LoadATransposed(v, Warp() % 4 * 16, t, a_high, a_low);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t b_high[2][2], b_low[2][2];
        LoadB(k, t, Warp() / 4 * (kState / 2) + n * 8, b_high, b_low);
        for (int i = 0; i < 2; ++i) MmaSplit(inner[n + i], a_high, a_low, b_high[i], b_low[i]);
      }
    }
  }
};

// out (Q S by halves of the state) · A_t + weights V by halves of the tokens.
template <int kState>
__device__ __forceinline__ void AddWeighted(const ChunkShared<kState>& s, float (&out)[4][2][4]) {
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out[m][i][e] = __fmul_rn(out[m][i][e], s.from_start[m * 16 + Lane() / 4 + e / 2 * 8]);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int tile = Warp() / 4 * 2 + j;  // of 16 tokens
    uint32_t b_high[2][2], b_low[2][2];
    LoadB(s.v, tile * 16, Warp() % 4 * 16, b_high, b_low);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      if (m < tile) continue;
      uint32_t a_high[4], a_low[4];
      LoadA(s.weights, m * 16, tile * 16, a_high, a_low);
      for (int i = 0; i < 2; ++i) MmaSplit(out[m][i], a_high, a_low, b_high[i], b_low[i]);
    }
  }
}

// Adds the halves and writes the outputs of one query head: each warp half of the tokens. Barriers inside.
template <int kState>
__device__ void WriteOutputs(const CudaRecurrence& r, const ChunkShared<kState>& s, float* o, int column,
                             const float (&out)[4][2][4]) {
  const int half = Warp() / 4;
  const int own_column = Warp() % 4 * 16 + Lane() % 4 * 2;
  __syncthreads();  // q and weights have been read
  const auto for_pairs = [&](int first_tile, const auto& body) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      if (m / 2 * 2 != first_tile) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < 4; e += 2)
          body(m * 16 + Lane() / 4 + e / 2 * 8, own_column + i * 8, out[m][i][e], out[m][i][e + 1]);
    }
  };
  for_pairs(2 - 2 * half, [&](int t, int c, float x, float y) {
    *reinterpret_cast<float2*>(s.exchange + t * kExchangePitch + c) = make_float2(x, y);
  });
  __syncthreads();
  for_pairs(2 * half, [&](int t, int c, float x, float y) {
    const float2 other = *reinterpret_cast<const float2*>(s.exchange + t * kExchangePitch + c);
    float factor = r.scale;
    if (r.z_inner != nullptr)
      factor =
          1.0f / (__fmaf_rn(s.before[t], s.from_start[t], __fadd_rn(s.own[t], s.own[kTokens + t])) + r.eps);
    float* const at = o + t * r.o_stride + c;
    // The lower half of the inner dimensions first, whichever warp has it.
    if (column + c < r.head_dim) at[0] = __fmul_rn(__fadd_rn(x, other.x), factor);
    if (column + c + 1 < r.head_dim) at[1] = __fmul_rn(__fadd_rn(y, other.y), factor);
  });
}

// v · A_C / A_t, in place.
template <int kState>
__device__ void ScaleValues(const ChunkShared<kState>& s) {
  for (int i = Thread(); i < kTokens * kColumns / 2; i += kThreads) {
    const int t = i / (kColumns / 2);
    if (s.to_end[t] == 1.0f) continue;
    const int column = i % (kColumns / 2) * 2;
    const SplitPair split =
        Split(__fmul_rn(s.v.Value(t, column), s.to_end[t]), __fmul_rn(s.v.Value(t, column + 1), s.to_end[t]));
    const int at = s.v.At(t, column);
    *reinterpret_cast<uint32_t*>(s.v.high + at) = split.high;
    *reinterpret_cast<uint32_t*>(s.v.low + at) = split.low;
  }
}

// One element of z a thread.
struct ChunkNormalizer {
  float inner = 0.0f, outer = 0.0f;

  template <int kState>
  __device__ void Add(const ChunkShared<kState>& s) {
    if (Thread() >= kState) return;
    AdvanceNormalizer(inner, outer, false, s.from_start[kTokens - 1]);
    float sum = 0.0f;
#pragma unroll 8
    for (int t = 0; t < kTokens; ++t) sum = __fmaf_rn(s.to_end[t], s.k.Value(t, Thread()), sum);
    inner = __fadd_rn(inner, sum);
  }
};

// grid: (runs · blocks of a head, heads). aligned: rows of q, k and v begin at 16-byte borders.
template <int kState, bool kTwoLevels>
__global__ void __launch_bounds__(kThreads) ChunksKernel(CudaRecurrence r, int blocks, bool aligned) {
  const int n = static_cast<int>(blockIdx.x) / blocks;
  const int column = (static_cast<int>(blockIdx.x) - n * blocks) * kColumns;
  const RecurrenceRun run = RunOf(r, n, static_cast<int>(blockIdx.y), RecurrencePart::kWholeChunks);
  if (run.tokens == 0) return;
  const ChunkShared<kState> s = SharedOf<kState>();
  const int64_t elements = static_cast<int64_t>(r.state_dim) * r.head_dim;
  float* const s_inner = StateOf(r.s_inner, r.s_inner_stride, run, elements);
  float* const s_outer = StateOf(r.s_outer, r.s_outer_stride, run, elements);
  float* const z_inner = StateOf(r.z_inner, r.z_inner_stride, run, r.state_dim);
  float* const z_outer = StateOf(r.z_outer, r.z_outer_stride, run, r.state_dim);
  const bool has_z = z_inner != nullptr && Thread() < r.state_dim;
  ChunkState<kState, kTwoLevels> state;
  state.Load(r, column, s_inner, s_outer);
  ChunkNormalizer z;
  if (has_z) z.inner = z_inner[Thread()];
  if (has_z && z_outer != nullptr) z.outer = z_outer[Thread()];
  bool outer_changed = false;
  for (int64_t token = 0; token < run.tokens; token += kTokens) {
    const bool fold = TokensToFold(r, run.position + token) == 0;
    if (fold) {
      state.Advance(true, 1.0f);
      AdvanceNormalizer(z.inner, z.outer, true, 1.0f);
    }
    __syncthreads();  // the chunk before has been read
    LoadTile(s.k, KeysOf(r, run) + token * r.k_stride, r.k_stride, r.state_dim, aligned);
    LoadTile(s.v,
             r.v + (run.first + token) * r.v_stride + static_cast<int64_t>(run.head) * r.head_dim + column,
             r.v_stride, r.head_dim - column, aligned);
    ComputeDecay(r, run, token, s);
    if (Thread() < kState) s.z[Thread()] = __fadd_rn(z.inner, z.outer);
    for (int query = 0; query < r.queries; ++query) {
      if (query > 0) __syncthreads();  // the exchange has been read
      LoadTile(s.q, QueriesOf(r, run) + query * r.state_dim + token * r.q_stride, r.q_stride, r.state_dim,
               aligned);
      __syncthreads();
      ComputeWeights(s);
      if (r.z_inner != nullptr) ComputeBefore(s);
      __syncthreads();
      float out[4][2][4] = {};
      state.Read(s.q, out);
      AddWeighted(s, out);
      float* const o = r.o + (run.first + token) * r.o_stride +
                       static_cast<int64_t>(run.head * r.queries + query) * r.head_dim + column;
      WriteOutputs(r, s, o, column, out);
    }
    const float decay = s.from_start[kTokens - 1];
    outer_changed = outer_changed || fold || decay != 1.0f;
    if (r.z_inner != nullptr) z.Add(s);
    ScaleValues(s);
    __syncthreads();
    if (decay != 1.0f) state.Advance(false, decay);
    state.Add(s.v, s.k);
  }
  state.Store(r, column, outer_changed, s_inner, s_outer);
  if (has_z) z_inner[Thread()] = z.inner;
  if (has_z && z_outer != nullptr) z_outer[Thread()] = z.outer;
}

}  // namespace

bool RecurrenceHasChunks(const CudaRecurrence& r) {
  return r.state_dim <= 128 && (r.z_inner == nullptr || r.head_dim <= kColumns);
}

void LaunchRecurrenceChunks(const CudaRecurrence& r, int num_seqs, cudaStream_t stream) {
  const int blocks = (r.head_dim + kColumns - 1) / kColumns;
  const bool aligned = r.state_dim % 4 == 0 && r.head_dim % 4 == 0 && Aligned16(r.q, r.q_stride) &&
                       Aligned16(r.k, r.k_stride) && Aligned16(r.v, r.v_stride);
  const bool two_levels = r.s_outer != nullptr;
  const dim3 grid(static_cast<unsigned>(num_seqs * blocks), static_cast<unsigned>(r.num_kv_heads));
  if (r.state_dim <= 64)
    LaunchCuda(two_levels ? ChunksKernel<64, true> : ChunksKernel<64, false>, grid, dim3(kThreads),
               ChunkShared<64>::kBytes, stream, r, blocks, aligned);
  else
    LaunchCuda(two_levels ? ChunksKernel<128, true> : ChunksKernel<128, false>, grid, dim3(kThreads),
               ChunkShared<128>::kBytes, stream, r, blocks, aligned);
}

}  // namespace weir
