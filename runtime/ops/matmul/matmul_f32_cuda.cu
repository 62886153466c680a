// f32 weights, with f32 products and sums: no tensor cores, whose f32 inputs would be rounded.
#include "runtime/ops/matmul/matmul_cuda.cuh"

namespace weir {
namespace {

using namespace cuda_matmul;  // NOLINT(google-build-using-namespace)

constexpr int kChunk = kChunkBytes / 4;  // values of k

__device__ __forceinline__ float MultiplyAdd(const float4& w, const float4& x, float sum) {
  sum = __fmaf_rn(w.x, x.x, sum);
  sum = __fmaf_rn(w.y, x.y, sum);
  sum = __fmaf_rn(w.z, x.z, sum);
  return __fmaf_rn(w.w, x.w, sum);
}

__device__ __forceinline__ float4 LoadUnit(const uint4* stage, int row, int unit) {
  return *reinterpret_cast<const float4*>(stage + UnitIndex(row, unit));
}

// ---- kStream: a warp is a segment, a lane is a row of W.

constexpr int kStreamThreads = kSegments * kLanes;
constexpr int kStreamStages = 3;
constexpr int kStageUnits = kLanes * kUnits;
constexpr size_t kStreamBytes = size_t{kSegments} * kStreamStages * kStageUnits * sizeof(uint4);

// acc += the lane's row of W times each row of x, over one chunk.
template <int kRows, bool kWhole>
__device__ __forceinline__ void MultiplyChunk(const CudaMatmul& a, const uint4* stage, int lane,
                                              int64_t first_m, int64_t chunk, float (&acc)[kRows]) {
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const float4 w = LoadUnit(stage, lane, unit);
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      acc[j] = MultiplyAdd(w, LoadX4<kWhole>(a, XRow(a, first_m + j), chunk * kChunk + unit * 4), acc[j]);
  }
}

// A block owns 32 columns and kRows rows of y. Each warp streams its segment of W through stages of its own,
// with no barrier but its own; all lanes read the same x.
template <int kRows>
__global__ void __launch_bounds__(kStreamThreads) StreamF32(CudaMatmul a) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int segment = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t first_n = static_cast<int64_t>(blockIdx.x) * kLanes;
  const int64_t first_m = static_cast<int64_t>(blockIdx.y) * kRows;
  const int64_t chunks = DivideUp(a.k, kChunk);
  const int64_t begin = SegmentBegin(chunks, segment);
  const int64_t end = SegmentBegin(chunks, segment + 1);
  uint4* const stages = DynamicShared<uint4>() + segment * (kStreamStages * kStageUnits);

#pragma unroll
  for (int i = 0; i < kStreamStages - 1; ++i) {
    if (begin + i < end) CopyWeights<kLanes, kLanes>(a, first_n, begin + i, lane, stages + i * kStageUnits);
    CpAsyncCommit();
  }
  float acc[kRows] = {};
  int stage = 0;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    CpAsyncWait<kStreamStages - 2>();
    __syncwarp();  // all lanes' copies have come, and nobody reads the stage before this one any more
    const int64_t ahead = chunk + kStreamStages - 1;
    const int free_stage = stage == 0 ? kStreamStages - 1 : stage - 1;
    if (ahead < end) CopyWeights<kLanes, kLanes>(a, first_n, ahead, lane, stages + free_stage * kStageUnits);
    CpAsyncCommit();
    if (ReadsWhole(a, chunk * kChunk, kChunk))
      MultiplyChunk<kRows, true>(a, stages + stage * kStageUnits, lane, first_m, chunk, acc);
    else
      MultiplyChunk<kRows, false>(a, stages + stage * kStageUnits, lane, first_m, chunk, acc);
    stage = stage + 1 == kStreamStages ? 0 : stage + 1;
  }

  // The segments meet in the memory of the stages: partial[segment][row of x][column of y].
  constexpr int kPartial = kRows * kLanes;
  static_assert(kSegments * kPartial * sizeof(float) <= kStreamBytes);
  float* const partial = DynamicShared<float>();
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kRows; ++j) partial[segment * kPartial + j * kLanes + lane] = acc[j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kPartial; i += kStreamThreads) {
    float total = 0.0f;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) total = __fadd_rn(total, partial[s * kPartial + i]);
    WriteOutput(a, first_m + i / kLanes, first_n + i % kLanes, total);
  }
}

// ---- kTile64: a block computes 64 x 64 outputs, a thread 4 x 4 of them, 16 apart.

constexpr int kTile = 64;
constexpr int kSide = 16;
constexpr int kPerThread = kTile / kSide;
constexpr int kTileThreads = kSide * kSide;
constexpr int kTileUnits = kTile * kUnits;
constexpr size_t kTileBytes = size_t{4} * kTileUnits * sizeof(uint4);  // two stages of W, two of x
constexpr int kLoads = kTileUnits / kTileThreads;

template <bool kWhole>
__device__ __forceinline__ void LoadStagedXAs(const CudaMatmul& a, int64_t first_m, int64_t chunk,
                                              float4 (&v)[kLoads]) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kTileThreads;
    v[i] = LoadX4<kWhole>(a, XRow(a, first_m + index / kUnits), chunk * kChunk + index % kUnits * 4);
  }
}

__device__ __forceinline__ void LoadStagedX(const CudaMatmul& a, int64_t first_m, int64_t chunk,
                                            float4 (&v)[kLoads]) {
  if (ReadsWhole(a, chunk * kChunk, kChunk))
    LoadStagedXAs<true>(a, first_m, chunk, v);
  else
    LoadStagedXAs<false>(a, first_m, chunk, v);
}

__device__ __forceinline__ void StoreStagedX(const float4 (&v)[kLoads], uint4* stage) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kTileThreads;
    *reinterpret_cast<float4*>(stage + UnitIndex(index / kUnits, index % kUnits)) = v[i];
  }
}

__global__ void __launch_bounds__(kTileThreads) TileF32(CudaMatmul a) {
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % kSide;
  const int row = thread / kSide;
  const int64_t first_n = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_m = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t chunks = DivideUp(a.k, kChunk);
  uint4* const w_stages = DynamicShared<uint4>();
  uint4* const x_stages = w_stages + 2 * kTileUnits;

  CopyWeights<kTile, kTileThreads>(a, first_n, 0, thread, w_stages);
  CpAsyncCommit();
  float4 x[kLoads];
  LoadStagedX(a, first_m, 0, x);
  StoreStagedX(x, x_stages);

  float acc[kPerThread][kPerThread] = {};
  float total[kPerThread][kPerThread] = {};
  SegmentWalk walk{chunks};
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int stage = static_cast<int>(chunk % 2) * kTileUnits;
    const int next = kTileUnits - stage;
    CpAsyncWait<0>();
    __syncthreads();  // this chunk is there, and nobody reads the chunk before it any more
    if (chunk + 1 < chunks) {
      CopyWeights<kTile, kTileThreads>(a, first_n, chunk + 1, thread, w_stages + next);
      LoadStagedX(a, first_m, chunk + 1, x);
    }
    CpAsyncCommit();
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      float4 w[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) w[i] = LoadUnit(w_stages + stage, column + i * kSide, unit);
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const float4 value = LoadUnit(x_stages + stage, row + j * kSide, unit);
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) acc[j][i] = MultiplyAdd(w[i], value, acc[j][i]);
      }
    }
    if (walk.EndsWith(chunk)) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j)
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
          total[j][i] = __fadd_rn(total[j][i], acc[j][i]);
          acc[j][i] = 0.0f;
        }
    }
    if (chunk + 1 < chunks) StoreStagedX(x, x_stages + next);
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j)
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      WriteOutput(a, first_m + row + j * kSide, first_n + column + i * kSide, total[j][i]);
}

template <int kRows>
void LaunchStream(const CudaMatmul& a, cudaStream_t stream) {
  LaunchCuda(StreamF32<kRows>, OutputGrid(a, kLanes, kRows), dim3(kStreamThreads), kStreamBytes, stream, a);
}

}  // namespace

void LaunchCudaMatmulF32(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream) {
  matmul.x_vector = VectorLoads(matmul);
  if (form != CudaMatmulForm::kStream)
    LaunchCuda(TileF32, OutputGrid(matmul, kTile, kTile), dim3(kTileThreads), kTileBytes, stream, matmul);
  else if (matmul.m == 1)
    LaunchStream<1>(matmul, stream);
  else if (matmul.m <= 4)
    LaunchStream<4>(matmul, stream);
  else
    LaunchStream<8>(matmul, stream);
}

}  // namespace weir
