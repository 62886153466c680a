// bf16 and int8 weights on the tensor cores. Device memory must move W once (2 n k bytes, or n k), and x and
// y once each (4 m k and 4 m n). The rest comes from the L2 cache: x for every column of blocks, W for every
// row of them.
#include <cuda_bf16.h>

#include <cstring>

#include "runtime/ops/matmul/matmul_cuda.cuh"

namespace weir {
namespace {

using namespace cuda_matmul;  // NOLINT(google-build-using-namespace)

constexpr int kChunk = 64;  // values of k
constexpr int kStep = 16;   // of one mma
constexpr int kSteps = kChunk / kStep;
constexpr int kTile = 16;  // rows of W of one mma
constexpr int kCols = 8;   // rows of x of one mma

__device__ __forceinline__ uint32_t RoundPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// A weight type says how its rows lie in shared memory, how kLoadSteps steps of A come from there (those of
// 16 rows of W from `row` on), and what a row of x in scratch takes.
struct Bf16Weights {
  static constexpr int kRowUnits = kUnits;  // of a chunk
  static constexpr int kLoadSteps = 1;
  static constexpr bool kScaled = false;
  // The two are equal.
  static __device__ __forceinline__ int64_t XRowBytes(const CudaMatmul& a) { return a.w_row_bytes; }
  static __device__ __forceinline__ void Load(uint32_t (&a)[kLoadSteps][4], const uint4* stage, int row,
                                              int step, int lane) {
    LdMatrix4(a[0], stage + UnitIndex(row + lane % 16, step * 2 + lane / 16));
  }
};

// Two of int8, in bits 0-7 and 16-23 of `word`, as bf16. With q = v - 128 s, where v is its lower seven bits
// and s the upper one, 128 + v and 128 + 128 s are bf16 values made by setting the bits of an exponent, and
// their difference is q, exactly.
__device__ __forceinline__ uint32_t WidenPair(uint32_t word) {
  const uint32_t value_bits = AndOr(word, 0x007f007fu, 0x43004300u);
  const uint32_t sign_bits = AndOr(word, 0x00800080u, 0x43004300u);
  __nv_bfloat162 value, sign;
  memcpy(static_cast<void*>(&value), &value_bits, sizeof(value));
  memcpy(static_cast<void*>(&sign), &sign_bits, sizeof(sign));
  const __nv_bfloat162 difference = __hsub2(value, sign);
  uint32_t bits;
  memcpy(&bits, &difference, sizeof(bits));
  return bits;
}

// A row's unit is a step here, and ldmatrix gives each lane four values of a row: by Int8Place those that the
// lane multiplies by. Widening them takes seven instructions: a shift, four lop3, two subtractions. (By way
// of f32, with a byte placed below the exponent of 2^23, it would be eleven, and conversions have a quarter
// of the rate.)
struct Int8Weights {
  static constexpr int kRowUnits = kInt8Units;
  static constexpr int kLoadSteps = 2;
  static constexpr bool kScaled = true;
  static __device__ __forceinline__ int64_t XRowBytes(const CudaMatmul& a) { return a.x_row_bytes; }
  static __device__ __forceinline__ void Load(uint32_t (&a)[kLoadSteps][4], const uint4* stage, int row,
                                              int step, int lane) {
    uint32_t words[4];
    LdMatrix4(words, stage + UnitIndex<kRowUnits>(row + lane % 16, step + lane / 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i / 2][i % 2] = WidenPair(words[i]);
      a[i / 2][i % 2 + 2] = WidenPair(words[i] >> 8);
    }
  }
};

// ---- kStream: a warp is a segment.

constexpr int kStreamThreads = kSegments * kLanes;

// This lane's part of the B operands of a chunk.
template <int kColTiles>
struct StreamedX {
  float2 v[kSteps][kColTiles][2];

  __device__ __forceinline__ void Load(const CudaMatmul& a, const float* const (&rows)[kColTiles],
                                       int64_t chunk, int lane) {
    if (ReadsWhole(a, chunk * kChunk, kChunk))
      LoadAs<true>(a, rows, chunk, lane);
    else
      LoadAs<false>(a, rows, chunk, lane);
  }

  template <bool kWhole>
  __device__ __forceinline__ void LoadAs(const CudaMatmul& a, const float* const (&rows)[kColTiles],
                                         int64_t chunk, int lane) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t k = chunk * kChunk + step * kStep + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kColTiles; ++j) {
        v[step][j][0] = LoadX2<kWhole>(a, rows[j], k);
        v[step][j][1] = LoadX2<kWhole>(a, rows[j], k + 8);
      }
    }
  }
};

// As many bytes on their way, whatever the type.
template <class Weights, int kRowTiles>
constexpr int kStreamStages = ((kRowTiles == 1 ? 4 : 3) - 1) * (kUnits / Weights::kRowUnits) + 1;

template <class Weights, int kRowTiles>
constexpr size_t kStreamBytes =
    size_t{kSegments} * kStreamStages<Weights, kRowTiles>* kRowTiles* kTile* Weights::kRowUnits* kUnitBytes;

// A block owns 16 kRowTiles columns and 8 kColTiles rows of y. Each warp streams its segment of W through
// stages of its own, with no barrier but its own; x goes from memory to registers.
template <class Weights, int kRowTiles, int kColTiles>
__global__ void __launch_bounds__(kStreamThreads) StreamMma(CudaMatmul a) {
  constexpr int kRows = kRowTiles * kTile;
  constexpr int kStages = kStreamStages<Weights, kRowTiles>;
  constexpr int kStageUnits = kRows * Weights::kRowUnits;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int segment = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t first_n = static_cast<int64_t>(blockIdx.x) * kRows;
  const int64_t first_m = static_cast<int64_t>(blockIdx.y) * (kColTiles * kCols);
  const int64_t chunks = DivideUp(a.k, kChunk);
  const int64_t begin = SegmentBegin(chunks, segment);
  const int64_t end = SegmentBegin(chunks, segment + 1);
  uint4* const stages = DynamicShared<uint4>() + segment * (kStages * kStageUnits);

  const float* rows[kColTiles];
#pragma unroll
  for (int j = 0; j < kColTiles; ++j) rows[j] = XRow(a, first_m + j * kCols + lane / 4);

#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (begin + i < end)
      CopyWeights<kRows, kLanes, Weights::kRowUnits>(a, first_n, begin + i, lane, stages + i * kStageUnits);
    CpAsyncCommit();
  }
  StreamedX<kColTiles> x;
  if (begin < end) x.Load(a, rows, begin, lane);

  float acc[kRowTiles][kColTiles][4] = {};
  int stage = 0;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    uint32_t b[kSteps][kColTiles][2];
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int j = 0; j < kColTiles; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          b[step][j][half] = RoundPair(x.v[step][j][half].x, x.v[step][j][half].y);
    CpAsyncWait<kStages - 2>();
    __syncwarp();  // all lanes' copies have come, and nobody reads the stage before this one any more
    const int64_t ahead = chunk + kStages - 1;
    const int free_stage = stage == 0 ? kStages - 1 : stage - 1;
    if (ahead < end)
      CopyWeights<kRows, kLanes, Weights::kRowUnits>(a, first_n, ahead, lane,
                                                     stages + free_stage * kStageUnits);
    CpAsyncCommit();
    if (chunk + 1 < end) x.Load(a, rows, chunk + 1, lane);
#pragma unroll
    for (int step = 0; step < kSteps; step += Weights::kLoadSteps) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        uint32_t w[Weights::kLoadSteps][4];
        Weights::Load(w, stages + stage * kStageUnits, i * kTile, step, lane);
#pragma unroll
        for (int s = 0; s < Weights::kLoadSteps; ++s)
#pragma unroll
          for (int j = 0; j < kColTiles; ++j) MmaBf16(acc[i][j], w[s], b[step + s][j]);
      }
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  // The segments meet in the memory of the stages: partial[segment][row of x][column of y].
  constexpr int kPitch = kRows + 4;  // a warp's writes below are in 32 banks
  constexpr int kPartial = kColTiles * kCols * kPitch;
  static_assert(kSegments * kPartial * sizeof(float) <= kStreamBytes<Weights, kRowTiles>);
  float* const partial = DynamicShared<float>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < kColTiles; ++j)
#pragma unroll
      for (int d = 0; d < 4; ++d)
        partial[segment * kPartial + (j * kCols + lane % 4 * 2 + d % 2) * kPitch + i * kTile + lane / 4 +
                d / 2 * 8] = acc[i][j][d];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColTiles * kCols; i += kStreamThreads) {
    const int row = i / kRows;
    const int column = i % kRows;
    float total = 0.0f;
#pragma unroll
    for (int s = 0; s < kSegments; ++s)
      total = __fadd_rn(total, partial[s * kPartial + row * kPitch + column]);
    WriteOutput<Weights::kScaled>(a, first_m + row, first_n + column, total);
  }
}

template <class Weights, int kRowTiles, int kColTiles>
void LaunchStreamOf(const CudaMatmul& a, cudaStream_t stream) {
  LaunchCuda(StreamMma<Weights, kRowTiles, kColTiles>, OutputGrid(a, kRowTiles * kTile, kColTiles * kCols),
             dim3(kStreamThreads), kStreamBytes<Weights, kRowTiles>, stream, a);
}

// ---- kTile64 and kTile128: a block computes all segments, one after the other.

constexpr int kRoundThreads = 128;
constexpr int kRoundValues = 8;  // a thread

// x in bf16, rows padded with zeros: once here instead of in every column of blocks.
// grid: (pieces of a row, rows).
__global__ void __launch_bounds__(kRoundThreads) RoundX(CudaMatmul a) {
  const int64_t k = (static_cast<int64_t>(blockIdx.x) * kRoundThreads + threadIdx.x) * kRoundValues;
  const int64_t at = k * 2;
  if (at >= a.x_row_bytes) return;
  const float* const row = XRow(a, blockIdx.y);
  const bool whole = ReadsWhole(a, k, kRoundValues);
  const float4 low = whole ? LoadX4<true>(a, row, k) : LoadX4<false>(a, row, k);
  const float4 high = whole ? LoadX4<true>(a, row, k + 4) : LoadX4<false>(a, row, k + 4);
  *reinterpret_cast<uint4*>(a.scratch + blockIdx.y * a.x_row_bytes + at) = make_uint4(
      RoundPair(low.x, low.y), RoundPair(low.z, low.w), RoundPair(high.x, high.y), RoundPair(high.z, high.w));
}

void RoundRows(const CudaMatmul& a, cudaStream_t stream) {
  const int64_t units = a.x_row_bytes / 2 / kRoundValues;
  LaunchCuda(RoundX, dim3(static_cast<unsigned>(DivideUp(units, kRoundThreads)), static_cast<unsigned>(a.m)),
             dim3(kRoundThreads), 0, stream, a);
}

// grid: (pieces of a row, rows).
__global__ void __launch_bounds__(kRoundThreads)
    FinishRows(CudaMatmul a, const float* product, int64_t product_stride) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kRoundThreads + threadIdx.x;
  if (column < a.n) WriteOutput(a, blockIdx.y, column, product[blockIdx.y * product_stride + column]);
}

template <class Weights_, int kN_, int kM_, int kWarpsN_, int kWarpsM_, int kStages_, int kMinBlocks_>
struct TileShape {
  using Weights = Weights_;
  static constexpr int kN = kN_, kM = kM_, kWarpsN = kWarpsN_, kWarpsM = kWarpsM_;
  static constexpr int kStages = kStages_;
  static constexpr int kMinBlocks = kMinBlocks_;  // a multiprocessor; bounds the registers
  static constexpr int kThreads = kWarpsN * kWarpsM * kLanes;
  static constexpr int kRowTiles = kN / kWarpsN / kTile;  // of a warp
  static constexpr int kColTiles = kM / kWarpsM / kCols;
  static_assert(kColTiles % 2 == 0);  // an ldmatrix brings two
  static constexpr int kWeightUnits = kN * Weights::kRowUnits;
  static constexpr int kStageUnits = kWeightUnits + kM * kUnits;  // W's rows, then those of x
  static constexpr size_t kBytes = size_t{kStages} * kStageUnits * sizeof(uint4);

  __device__ static __forceinline__ void Copy(const CudaMatmul& a, int64_t first_n, int64_t first_m,
                                              int64_t chunk, uint4* stage) {
    const int thread = static_cast<int>(threadIdx.x);
    CopyWeights<kN, kThreads, Weights::kRowUnits>(a, first_n, chunk, thread, stage);
    CopyChunk<kM, kThreads>(a.scratch, a.m, Weights::XRowBytes(a), first_m, chunk, thread,
                            stage + kWeightUnits);
  }
};
template <class Weights>
using Tile64 = TileShape<Weights, 64, 64, 2, 2, 5, 2>;
template <class Weights>
using Tile128 = TileShape<Weights, 128, 128, 2, 4, 3, 1>;

template <class Shape>
using TileSums = float[Shape::kRowTiles][Shape::kColTiles][4];

// B of one step for this warp's rows of x.
template <class Shape>
__device__ __forceinline__ void LoadX(uint32_t (&b)[Shape::kColTiles][2], const uint4* x_stage, int column,
                                      int step, int lane) {
#pragma unroll
  for (int j = 0; j < Shape::kColTiles; j += 2) {
    uint32_t both[4];
    LdMatrix4(both,
              x_stage + UnitIndex(column + j * kCols + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
    b[j][0] = both[0];
    b[j][1] = both[1];
    b[j + 1][0] = both[2];
    b[j + 1][1] = both[3];
  }
}

// acc += W xᵀ over one chunk for this warp's part of the tile.
template <class Shape>
__device__ __forceinline__ void MultiplyChunk(const uint4* w_stage, const uint4* x_stage, int row, int column,
                                              int lane, TileSums<Shape>& acc) {
  using Weights = typename Shape::Weights;
#pragma unroll
  for (int step = 0; step < kSteps; step += Weights::kLoadSteps) {
    uint32_t b[Weights::kLoadSteps][Shape::kColTiles][2];
#pragma unroll
    for (int s = 0; s < Weights::kLoadSteps; ++s) LoadX<Shape>(b[s], x_stage, column, step + s, lane);
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      uint32_t w[Weights::kLoadSteps][4];
      Weights::Load(w, w_stage, row + i * kTile, step, lane);
#pragma unroll
      for (int s = 0; s < Weights::kLoadSteps; ++s)
#pragma unroll
        for (int j = 0; j < Shape::kColTiles; ++j) MmaBf16(acc[i][j], w[s], b[s][j]);
    }
  }
}

template <class Shape>
__device__ __forceinline__ void FoldSegment(TileSums<Shape>& acc, TileSums<Shape>& total) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < Shape::kColTiles; ++j)
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        total[i][j][d] = __fadd_rn(total[i][j][d], acc[i][j][d]);
        acc[i][j][d] = 0.0f;
      }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kMinBlocks) TileMma(CudaMatmul a) {
  constexpr int kStages = Shape::kStages;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int row = warp / Shape::kWarpsM * (Shape::kRowTiles * kTile);
  const int column = warp % Shape::kWarpsM * (Shape::kColTiles * kCols);
  const int64_t first_n = static_cast<int64_t>(blockIdx.x) * Shape::kN;
  const int64_t first_m = static_cast<int64_t>(blockIdx.y) * Shape::kM;
  const int64_t chunks = DivideUp(a.k, kChunk);
  uint4* const stages = DynamicShared<uint4>();

#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < chunks) Shape::Copy(a, first_n, first_m, i, stages + i * Shape::kStageUnits);
    CpAsyncCommit();
  }
  TileSums<Shape> acc = {};
  TileSums<Shape> total = {};
  SegmentWalk walk{chunks};
  int stage = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    CpAsyncWait<kStages - 2>();
    __syncthreads();  // this chunk is there, and nobody reads the chunk before it any more
    const int64_t ahead = chunk + kStages - 1;
    const int free_stage = stage == 0 ? kStages - 1 : stage - 1;
    if (ahead < chunks) Shape::Copy(a, first_n, first_m, ahead, stages + free_stage * Shape::kStageUnits);
    CpAsyncCommit();
    const uint4* const w_stage = stages + stage * Shape::kStageUnits;
    MultiplyChunk<Shape>(w_stage, w_stage + Shape::kWeightUnits, row, column, lane, acc);
    if (walk.EndsWith(chunk)) FoldSegment<Shape>(acc, total);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < Shape::kColTiles; ++j)
#pragma unroll
      for (int d = 0; d < 4; ++d)
        WriteOutput<Shape::Weights::kScaled>(a, first_m + column + j * kCols + lane % 4 * 2 + d % 2,
                                             first_n + row + i * kTile + lane / 4 + d / 2 * 8,
                                             total[i][j][d]);
}

template <class Shape>
void LaunchTile(CudaMatmul a, cudaStream_t stream) {
  const int64_t rows = a.m;
  for (int64_t begin = 0; begin < rows; begin += a.scratch_rows) {
    a.m = rows - begin < a.scratch_rows ? rows - begin : a.scratch_rows;
    RoundRows(a, stream);
    LaunchCuda(TileMma<Shape>, OutputGrid(a, Shape::kN, Shape::kM), dim3(Shape::kThreads), Shape::kBytes,
               stream, a);
    a.x += a.m * a.x_stride;
    a.y += a.m * a.y_stride;
  }
}

// More rows of W a block mean that x is read less often, but fewer blocks.
template <class Weights>
void LaunchStream(const CudaMatmul& a, cudaStream_t stream) {
  const bool wide = a.m > 4 && DivideUp(a.n, 2 * kTile) * DivideUp(a.m, 2 * kCols) >= 128;
  if (a.m <= kCols)
    wide ? LaunchStreamOf<Weights, 2, 1>(a, stream) : LaunchStreamOf<Weights, 1, 1>(a, stream);
  else if (a.m <= 2 * kCols)
    wide ? LaunchStreamOf<Weights, 2, 2>(a, stream) : LaunchStreamOf<Weights, 1, 2>(a, stream);
  else
    LaunchStreamOf<Weights, 1, 4>(a, stream);
}

template <class Weights>
void Launch(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream) {
  matmul.x_vector = VectorLoads(matmul);
  switch (form) {
    case CudaMatmulForm::kStream:
      return LaunchStream<Weights>(matmul, stream);
    case CudaMatmulForm::kTile64:
      return LaunchTile<Tile64<Weights>>(matmul, stream);
    case CudaMatmulForm::kTile128:
      return LaunchTile<Tile128<Weights>>(matmul, stream);
  }
}

// grid: (tokens, pieces of a row). Rows come by the byte: what they save is weight memory, and a step reads
// few of them.
__global__ void __launch_bounds__(kRoundThreads) GatherInt8(CudaGatherInt8 a) {
  const int64_t token = blockIdx.x;
  const int64_t k = static_cast<int64_t>(blockIdx.y) * kRoundThreads + threadIdx.x;
  if (k >= a.width) return;
  const int64_t row = a.index[token];
  const auto value = static_cast<float>(static_cast<signed char>(a.w[row * a.w_row_bytes + Int8Place(k)]));
  a.y[token * a.y_stride + k] = __fmul_rn(a.scales[row], value);
}

}  // namespace

// For a GPU with 100 to 200 multiprocessors, where x and W come from the L2 cache at about its bandwidth: the
// larger the tile, the less is read, until too few blocks are left.
CudaMatmulForm ChooseCudaMatmulForm(int64_t m, int64_t n) {
  if (m <= 2 * kCols || DivideUp(m, 64) * DivideUp(n, 64) < 16) return CudaMatmulForm::kStream;
  return DivideUp(m, 128) * DivideUp(n, 128) < 64 ? CudaMatmulForm::kTile64 : CudaMatmulForm::kTile128;
}

void LaunchCudaMatmulBf16(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream) {
  Launch<Bf16Weights>(matmul, form, stream);
}

void LaunchCudaMatmulInt8(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream) {
  Launch<Int8Weights>(matmul, form, stream);
}

void LaunchCudaRoundRows(CudaMatmul matmul, cudaStream_t stream) {
  matmul.x_vector = VectorLoads(matmul);
  RoundRows(matmul, stream);
}

void LaunchCudaFinishRows(const CudaMatmul& matmul, const float* product, int64_t product_stride,
                          cudaStream_t stream) {
  LaunchCuda(FinishRows,
             dim3(static_cast<unsigned>(DivideUp(matmul.n, kRoundThreads)), static_cast<unsigned>(matmul.m)),
             dim3(kRoundThreads), 0, stream, matmul, product, product_stride);
}

void LaunchCudaGatherInt8(const CudaGatherInt8& gather, cudaStream_t stream) {
  LaunchCuda(GatherInt8,
             dim3(static_cast<unsigned>(gather.num_tokens),
                  static_cast<unsigned>(DivideUp(gather.width, kRoundThreads))),
             dim3(kRoundThreads), 0, stream, gather);
}

}  // namespace weir
