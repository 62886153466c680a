// What a warp does with its 16 rows of queries and one step of keys and values in shared memory: scores,
// online softmax, weighted sum of values (Milakov & Gimelshein 2018; Dao et al. 2022). A row is one query
// head of one token. Lane 4 g + t holds columns 8 n + 2 t and 8 n + 2 t + 1 of rows g and g + 8, as MmaBf16
// lays them out.
//
// A row's arithmetic involves nothing of the other rows and does not depend on which warp or kernel does it:
// that is why prefill and decode agree bit for bit.
//
// 16-bit pools go through tensor cores. Keys and values are exact there; queries and weights are sums of
// parts of the pool's type: two of f16 (22 bits) or, of bf16, three for queries (24 bits) and two for weights
// (16 bits). f32 pools are multiplied in f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "runtime/device/cuda_ptx.cuh"

namespace weir {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kLanes = 32;
inline constexpr int kWarpRows = 16;
inline constexpr float kNoScore = -INFINITY;

struct PoolF32 {
  using Element = float;
  static constexpr int kQueryParts = 1;
  static constexpr float kWeightScale = 1.0f;
  static constexpr bool kNormalised = false;
  static __device__ bool Finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }
};

struct PoolF16 {
  using Element = uint16_t;
  static constexpr int kQueryParts = 2;
  // f16 has few exponents: weights are stored times 2^15, and queries times a power of two of their row.
  static constexpr float kWeightScale = 32768.0f;
  static constexpr bool kNormalised = true;
  static __device__ uint16_t Round(float x) { return __half_as_ushort(__float2half_rn(x)); }
  static __device__ float Value(uint16_t x) { return __half2float(__ushort_as_half(x)); }
  static __device__ bool Finite(uint16_t x) { return (x & 0x7c00u) != 0x7c00u; }
  static __device__ uint32_t Pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  static __device__ float Low(uint32_t pair) { return Value(static_cast<uint16_t>(pair)); }
  static __device__ float High(uint32_t pair) { return Value(static_cast<uint16_t>(pair >> 16)); }
  static __device__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    MmaF16(d, a, b);
  }
};

struct PoolBf16 {
  using Element = uint16_t;
  static constexpr int kQueryParts = 3;
  static constexpr float kWeightScale = 1.0f;
  static constexpr bool kNormalised = false;
  static __device__ uint16_t Round(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
  static __device__ float Value(uint16_t x) { return __uint_as_float(static_cast<uint32_t>(x) << 16); }
  static __device__ bool Finite(uint16_t x) { return (x & 0x7f80u) != 0x7f80u; }
  static __device__ uint32_t Pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  static __device__ float Low(uint32_t pair) { return __uint_as_float(pair << 16); }
  static __device__ float High(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
  static __device__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    MmaBf16(d, a, b);
  }
};

// Sizes of a block of kWarps warps for head_dim up to kDim. Rows in shared memory are padded by 16 bytes,
// which spreads the eight rows of an ldmatrix over all banks.
template <class Pool_, int kDim_, int kWarps_>
struct FlashTile {
  using Pool = Pool_;
  using Element = typename Pool::Element;
  static constexpr int kDim = kDim_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kThreads = kWarps * kLanes;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr bool kTensorCores = !std::is_same_v<Element, float>;
  static constexpr int kElementBytes = static_cast<int>(sizeof(Element));
  // Keys of one step: fixed by type and head_dim, since it decides the order of sums.
  static constexpr int kKeys = kDim * kElementBytes <= 256 ? 64 : kDim * kElementBytes <= 512 ? 32 : 16;
  static constexpr int kChunk = 16 / kElementBytes;  // elements of a 16-byte copy
  static constexpr int kKeyStride = kKeys + kChunk;
  static constexpr int kValueStride = kDim + kChunk;
  static constexpr int kQueryStride = kDim + kChunk;
  static constexpr int kWeightStride = kKeys + 4;
  static constexpr int kScoreTiles = kKeys / 8;
  static constexpr int kDimTiles = kDim / 8;
  // Running totals over pieces are kept in registers while they fit beside the piece's own sums.
  static constexpr bool kTotalInShared = kDim > 128;

  static constexpr size_t kKeyBytes = sizeof(Element) * kDim * kKeyStride;
  static constexpr size_t kValueBytes = sizeof(Element) * kKeys * kValueStride;
  static constexpr size_t kQueryBytes = sizeof(Element) * Pool::kQueryParts * kRows * kQueryStride;
  static constexpr size_t kWeightBytes = kTensorCores ? 0 : sizeof(float) * kRows * kWeightStride;
  static constexpr size_t kFactorBytes = sizeof(float) * kRows;
  static constexpr size_t kTotalBytes = kTotalInShared ? sizeof(float) * kRows * kDim : 0;
  static constexpr size_t kBytes = kKeyBytes + kValueBytes + kQueryBytes + kWeightBytes + kFactorBytes;
};

template <class Tile>
struct FlashShared {
  typename Tile::Element* k;  // [kDim][kKeyStride]
  typename Tile::Element* v;  // [kKeys][kValueStride]
  typename Tile::Element* q;  // [kQueryParts][kRows][kQueryStride]
  float* weights;             // f32 pools: [kRows][kWeightStride]
  float* factor;              // [kRows]: what a row's products are multiplied by to be scores times log2 e
  float* total;               // [kDim / 2][kThreads], where totals lie in shared memory

  __device__ explicit FlashShared(unsigned char* at) {
    k = reinterpret_cast<typename Tile::Element*>(at);
    v = reinterpret_cast<typename Tile::Element*>(at + Tile::kKeyBytes);
    q = reinterpret_cast<typename Tile::Element*>(at + Tile::kKeyBytes + Tile::kValueBytes);
    weights = reinterpret_cast<float*>(at + Tile::kKeyBytes + Tile::kValueBytes + Tile::kQueryBytes);
    factor = weights + Tile::kWeightBytes / sizeof(float);
    total = factor + Tile::kRows;
  }
};

// Where a thread stands in its warp.
struct FlashLane {
  int warp, lane, group, pair;  // group: row; pair: columns 2 pair and 2 pair + 1 of every 8
  __device__ FlashLane() {
    warp = static_cast<int>(threadIdx.x) / kLanes;
    lane = static_cast<int>(threadIdx.x) % kLanes;
    group = lane / 4;
    pair = lane % 4;
  }
  // The row and column of a 16 x 16 tile whose address this lane gives to ldmatrix.
  __device__ int MatrixRow() const { return lane % 16; }
  __device__ int MatrixColumn() const { return lane / 16 * 8; }
};

// A row's softmax so far: sums are relative to 2^m.
template <class Tile>
struct FlashState {
  float o[Tile::kDimTiles][4];
  float l[2];
  float m[2];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < Tile::kDimTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      l[half] = 0.0f;
      m[half] = kNoScore;
    }
  }
};

// What to subtract from scores whose maximum is m. Where nothing has been seen yet, not infinity from
// infinity.
__device__ __forceinline__ float FlashOrigin(float m) { return m == kNoScore ? 0.0f : m; }
__device__ __forceinline__ float FlashExp2(float x, float origin) { return exp2f(__fadd_rn(x, -origin)); }

// Factors by which sums relative to 2^total and 2^piece become relative to the larger one.
struct FlashMerge {
  float total, piece, m;
  __device__ __forceinline__ FlashMerge(float total_m, float piece_m) {
    m = fmaxf(total_m, piece_m);
    const float origin = FlashOrigin(m);
    total = FlashExp2(total_m, origin);
    piece = FlashExp2(piece_m, origin);
  }
  __device__ __forceinline__ float Sum(float of_total, float of_piece) const {
    return __fmaf_rn(of_total, total, __fmul_rn(of_piece, piece));
  }
};

// An output from its sum. Zero is always positive: its sign could depend on masked values.
__device__ __forceinline__ float FlashOutput(float o, float inverse) {
  return __fadd_rn(__fmul_rn(o, inverse), 0.0f);
}

// d += a b in f32. a0 and a1: rows group and group + 8, `depth` long; b: [depth][stride]. Row 0 sees only
// the first `visible[0]` rows of b, row 1 only visible[1].
template <bool kMasked, int kTiles>
__device__ __forceinline__ void MultiplyF32(float (&d)[kTiles][4], const float* a0, const float* a1,
                                            const float* b, int stride, int depth, const int (&visible)[2]) {
#pragma unroll(kTiles > 16 ? 1 : 2)  // 128 sums leave few registers
  for (int k = 0; k < depth; ++k) {
    const float x0 = a0[k];
    const float x1 = a1[k];
    const float* const row = b + k * stride;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float2 y = *reinterpret_cast<const float2*>(row + n * 8);
      const bool in0 = !kMasked || k < visible[0];
      const bool in1 = !kMasked || k < visible[1];
      d[n][0] = __fmaf_rn(x0, in0 ? y.x : 0.0f, d[n][0]);
      d[n][1] = __fmaf_rn(x0, in0 ? y.y : 0.0f, d[n][1]);
      d[n][2] = __fmaf_rn(x1, in1 ? y.x : 0.0f, d[n][2]);
      d[n][3] = __fmaf_rn(x1, in1 ? y.y : 0.0f, d[n][3]);
    }
  }
}

// s = q k for the warp's rows, unscaled.
template <class Tile>
__device__ __forceinline__ void Scores(float (&s)[Tile::kScoreTiles][4], const FlashShared<Tile>& shared,
                                       const FlashLane& at, int head_dim) {
#pragma unroll
  for (int n = 0; n < Tile::kScoreTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
  const auto* const q = shared.q + at.warp * kWarpRows * Tile::kQueryStride;
  if constexpr (Tile::kTensorCores) {
#pragma unroll(Tile::kDim <= 64 ? 4 : 2)
    for (int dim = 0; dim < Tile::kDim; dim += 16) {
      if (dim >= head_dim) break;
      uint32_t a[Tile::Pool::kQueryParts][4];
#pragma unroll
      for (int part = 0; part < Tile::Pool::kQueryParts; ++part)
        LdMatrix4(a[part],
                  q + (part * Tile::kRows + at.MatrixRow()) * Tile::kQueryStride + dim + at.MatrixColumn());
#pragma unroll
      for (int n = 0; n < Tile::kScoreTiles; n += 2) {
        uint32_t r[4];
        LdMatrix4Trans(r, shared.k + (dim + at.MatrixRow()) * Tile::kKeyStride + n * 8 + at.MatrixColumn());
        const uint32_t b0[2] = {r[0], r[1]};
        const uint32_t b1[2] = {r[2], r[3]};
#pragma unroll
        for (int part = 0; part < Tile::Pool::kQueryParts; ++part) {
          Tile::Pool::Mma(s[n], a[part], b0);
          Tile::Pool::Mma(s[n + 1], a[part], b1);
        }
      }
    }
  } else {
    const int all[2] = {0, 0};
    const float* const a0 = q + at.group * Tile::kQueryStride;
    MultiplyF32<false>(s, a0, a0 + 8 * Tile::kQueryStride, shared.k + 2 * at.pair, Tile::kKeyStride, head_dim,
                       all);
  }
}

// Scores become weights relative to the rows' new maximum; the sums so far follow it. Row `half` sees the
// step's first `visible[half]` keys.
template <class Tile>
__device__ __forceinline__ void Softmax(float (&s)[Tile::kScoreTiles][4], FlashState<Tile>& state,
                                        const float (&factor)[2], const int (&visible)[2],
                                        const FlashLane& at) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = kNoScore;
#pragma unroll
    for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n][2 * half + i];
        score = n * 8 + 2 * at.pair + i < visible[half] ? __fmul_rn(score, factor[half]) : kNoScore;
        max = fmaxf(max, score);
      }
    }
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    max = fmaxf(max, state.m[half]);
    const float origin = FlashOrigin(max);
    const float shrink = FlashExp2(state.m[half], origin);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n][2 * half + i];
        score = __fmul_rn(FlashExp2(score, origin), Tile::Pool::kWeightScale);
        sum = __fadd_rn(sum, score);
      }
    }
    state.m[half] = max;
    state.l[half] = __fmaf_rn(state.l[half], shrink, sum);  // of this lane's columns
#pragma unroll
    for (int n = 0; n < Tile::kDimTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) state.o[n][2 * half + i] = __fmul_rn(state.o[n][2 * half + i], shrink);
    }
  }
}

// Adds up the lanes' shares of l.
template <class Tile>
__device__ __forceinline__ void SumWeights(FlashState<Tile>& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float l = state.l[half];
    l = __fadd_rn(l, __shfl_xor_sync(kAllLanes, l, 1));
    state.l[half] = __fadd_rn(l, __shfl_xor_sync(kAllLanes, l, 2));
  }
}

// The values of keys `first` and `first` + 1 as far as they are among the first `visible`.
__device__ __forceinline__ uint32_t KeepVisible(uint32_t pair, int first, int visible) {
  return first + 1 < visible ? pair : first < visible ? pair & 0xffffu : 0u;
}

// d + (high + low) b for rows that see different numbers of b's 16 values: a zero weight does not hide a
// value that is not finite. One row at a time, for the rare step that has such a value; all by value, so that
// a call keeps d in registers.
template <class Pool>
__device__ __attribute__((noinline)) float4 MmaOneRowAtATime(float4 d, uint4 high, uint4 low, uint2 b,
                                                             int visible0, int visible1) {
  const FlashLane at;
  const uint32_t a_high[4] = {high.x, high.y, high.z, high.w};
  const uint32_t a_low[4] = {low.x, low.y, low.z, low.w};
  for (int row = 0; row < 8; ++row) {
    for (int half = 0; half < 2; ++half) {
      const int visible = __shfl_sync(kAllLanes, half == 0 ? visible0 : visible1, row * 4);
      const uint32_t seen[2] = {KeepVisible(b.x, 2 * at.pair, visible),
                                KeepVisible(b.y, 2 * at.pair + 8, visible)};
      float one[4] = {d.x, d.y, d.z, d.w};
      Pool::Mma(one, a_high, seen);
      Pool::Mma(one, a_low, seen);
      if (at.group != row) continue;
      if (half == 0) {
        d.x = one[0];
        d.y = one[1];
      } else {
        d.z = one[2];
        d.w = one[3];
      }
    }
  }
  return d;
}

template <class Pool>
__device__ __forceinline__ void CarefulMma(float (&d)[4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                                           uint32_t b0, uint32_t b1, int visible0, int visible1) {
  const float4 sum = MmaOneRowAtATime<Pool>(
      make_float4(d[0], d[1], d[2], d[3]), make_uint4(high[0], high[1], high[2], high[3]),
      make_uint4(low[0], low[1], low[2], low[3]), make_uint2(b0, b1), visible0, visible1);
  d[0] = sum.x;
  d[1] = sum.y;
  d[2] = sum.z;
  d[3] = sum.w;
}

// o += weights v. `careful`: some value that not all rows see may not be finite; only where kMayBeCareful.
template <class Tile, bool kMayBeCareful>
__device__ __forceinline__ void AddValues(FlashState<Tile>& state, const float (&s)[Tile::kScoreTiles][4],
                                          const FlashShared<Tile>& shared, const int (&visible)[2],
                                          bool careful, const FlashLane& at, int head_dim) {
  if constexpr (Tile::kTensorCores) {
#pragma unroll
    for (int j = 0; j < Tile::kKeys / 16; ++j) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = s[2 * j + i / 2][i % 2 * 2];
        const float y = s[2 * j + i / 2][i % 2 * 2 + 1];
        high[i] = Tile::Pool::Pack(x, y);
        low[i] = Tile::Pool::Pack(__fadd_rn(x, -Tile::Pool::Low(high[i])),
                                  __fadd_rn(y, -Tile::Pool::High(high[i])));
      }
#pragma unroll
      for (int n = 0; n < Tile::kDimTiles; n += 2) {
        if (n * 8 >= head_dim) break;
        uint32_t r[4];
        LdMatrix4Trans(r,
                       shared.v + (j * 16 + at.MatrixRow()) * Tile::kValueStride + n * 8 + at.MatrixColumn());
        if (kMayBeCareful && careful) {
          const int rows[2] = {visible[0] - j * 16, visible[1] - j * 16};
          CarefulMma<typename Tile::Pool>(state.o[n], high, low, r[0], r[1], rows[0], rows[1]);
          CarefulMma<typename Tile::Pool>(state.o[n + 1], high, low, r[2], r[3], rows[0], rows[1]);
          continue;
        }
        const uint32_t b0[2] = {r[0], r[1]};
        const uint32_t b1[2] = {r[2], r[3]};
        Tile::Pool::Mma(state.o[n], high, b0);
        Tile::Pool::Mma(state.o[n + 1], high, b1);
        Tile::Pool::Mma(state.o[n], low, b0);
        Tile::Pool::Mma(state.o[n + 1], low, b1);
      }
    }
  } else {
    float* const a0 = shared.weights + (at.warp * kWarpRows + at.group) * Tile::kWeightStride;
    float* const a1 = a0 + 8 * Tile::kWeightStride;
#pragma unroll
    for (int n = 0; n < Tile::kScoreTiles; ++n) {
      *reinterpret_cast<float2*>(a0 + n * 8 + 2 * at.pair) = make_float2(s[n][0], s[n][1]);
      *reinterpret_cast<float2*>(a1 + n * 8 + 2 * at.pair) = make_float2(s[n][2], s[n][3]);
    }
    __syncwarp();
    const float* const v = shared.v + 2 * at.pair;
    if (kMayBeCareful && careful)
      MultiplyF32<true>(state.o, a0, a1, v, Tile::kValueStride, Tile::kKeys, visible);
    else
      MultiplyF32<false>(state.o, a0, a1, v, Tile::kValueStride, Tile::kKeys, visible);
  }
}

}  // namespace weir
