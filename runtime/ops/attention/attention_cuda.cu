// Flash attention on NVIDIA GPUs. Runs of several tokens are cut into tiles, whose block walks the whole
// prefix; runs of one token are cut along the sequence into pieces of 256 positions, one warp each, whose
// partial sums a second kernel merges in order (flash decoding, Dao et al. 2023). Tiles too finish a piece at
// every 256th position and merge it into a total, by the same functions (flash_tile.cuh), so both give a
// token the same bits.
//
// Decode moves each visible key and value of a sequence once: 2 · head_dim elements of the pool per position
// and KV head, and 4 · (head_dim + 2) bytes of scratch out and in per piece and head. A prefill tile of 64
// rows moves them once per 64 / group tokens, mostly from the L2 cache.
#include "runtime/device/cuda_launch.cuh"
#include "runtime/ops/attention/attention_cuda.h"
#include "runtime/ops/attention/flash_tile.cuh"
#include "runtime/ops/cuda_rows.cuh"

namespace weir {
namespace {

constexpr int kPoolBlock = 64;          // positions
constexpr int kPiece = 4 * kPoolBlock;  // positions
constexpr int kCombineThreads = 64;     // columns
constexpr int64_t kSplitBlocks = int64_t{1}
                                 << 15;  // enough for any GPU; blocks that find nothing to do cost little
constexpr int kMinSplitPieces = 4;

// How the query heads of a KV head and the tokens of a run fill a block's rows.
struct RowPlan {
  int tokens;  // per tile
  int heads;   // of one KV head in one block
  int chunks;  // blocks per KV head
};

__host__ __device__ constexpr RowPlan PlanRows(int rows, int group) {
  const int chunks = (group + rows - 1) / rows;
  const int heads = (group + chunks - 1) / chunks;
  return {rows / heads, heads, chunks};
}

// The rows of a block: row r is head `head` + r % heads of token `token` + r / heads.
struct Rows {
  const int32_t* table;
  int64_t token;
  int64_t position;  // of `token`
  int tokens;
  int kv_head;
  int head;
  int heads;
};

__device__ Rows RowsOf(const CudaAttention& a, const RowPlan& plan, int run, int64_t token, int tokens) {
  const int group = a.num_heads / a.kv.num_kv_heads;
  const int chunk = static_cast<int>(blockIdx.y) % plan.chunks;
  Rows rows;
  rows.table = a.batch.block_tables + run * a.batch.table_stride;
  rows.token = token;
  rows.position = a.batch.positions[run] + token - a.batch.cu_seqlens[run];
  rows.tokens = tokens;
  rows.kv_head = static_cast<int>(blockIdx.y) / plan.chunks;
  rows.head = rows.kv_head * group + chunk * plan.heads;
  rows.heads = min(plan.heads, group - chunk * plan.heads);
  return rows;
}

template <class Tile>
__device__ __forceinline__ void SyncBlock() {
  if constexpr (Tile::kWarps == 1)
    __syncwarp();
  else
    __syncthreads();
}

// The power of two that brings `max` into [2^14, 2^15), and its inverse.
struct PowerOfTwo {
  float factor, inverse;
  __device__ explicit PowerOfTwo(float max) {
    const uint32_t exponent = __float_as_uint(max) >> 23;
    if (exponent == 255) {
      factor = inverse = 1.0f;
      return;
    }
    const uint32_t e = exponent < 15 ? 15 : exponent;
    factor = __uint_as_float((268 - e) << 23);
    inverse = __uint_as_float((e - 14) << 23);
  }
};

// Each warp brings its own rows in, in the parts that the pool's type needs, with zeros where there is no row
// or dimension.
template <class Tile>
__device__ void LoadQueries(const CudaAttention& a, const Rows& rows, const FlashShared<Tile>& shared,
                            const FlashLane& at) {
  using Pool = typename Tile::Pool;
  constexpr int kColumns = Tile::kDim / kLanes;
  const float scale = __fmul_rn(a.scale, 1.44269504088896340736f);
#pragma unroll 4
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = at.warp * kWarpRows + i;
    const bool exists = row < rows.tokens * rows.heads;
    const float* const q = a.q + (rows.token + row / rows.heads) * a.q_stride +
                           static_cast<int64_t>(rows.head + row % rows.heads) * a.kv.head_dim;
    float x[kColumns];
    float max = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = c * kLanes + at.lane;
      x[c] = exists && column < a.kv.head_dim ? q[column] : 0.0f;
      max = fmaxf(max, fabsf(x[c]));
    }
    float factor = scale;
    if constexpr (Pool::kNormalised) {
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2)
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, offset));
      const PowerOfTwo power(max);
      factor = __fmul_rn(scale, power.inverse);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) x[c] = __fmul_rn(x[c], power.factor);
    }
    if (at.lane == 0) shared.factor[row] = factor;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      auto* const to = shared.q + row * Tile::kQueryStride + c * kLanes + at.lane;
      if constexpr (Tile::kTensorCores) {
#pragma unroll
        for (int part = 0; part < Pool::kQueryParts; ++part) {
          const auto rounded = Pool::Round(x[c]);
          to[part * Tile::kRows * Tile::kQueryStride] = rounded;
          x[c] = __fadd_rn(x[c], -Pool::Value(rounded));
        }
      } else {
        *to = x[c];
      }
    }
  }
}

// Dimensions that do not exist are zeros throughout.
template <class Tile>
__device__ void ClearPadding(const FlashShared<Tile>& shared, int head_dim) {
  const int padding = Tile::kDim - head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < padding * Tile::kKeys; i += Tile::kThreads) {
    shared.k[(head_dim + i / Tile::kKeys) * Tile::kKeyStride + i % Tile::kKeys] = 0;
    shared.v[i / padding * Tile::kValueStride + head_dim + i % padding] = 0;
  }
}

// The cells (row, column) of a matrix `width` wide that a thread of kThreads takes in turn, without a
// division for each.
template <int kThreads>
struct CellWalk {
  int row, column, width;
  __device__ __forceinline__ explicit CellWalk(int matrix_width)
      : row(static_cast<int>(threadIdx.x) / matrix_width),
        column(static_cast<int>(threadIdx.x) % matrix_width),
        width(matrix_width) {}
  __device__ __forceinline__ void Next() {
    row += kThreads / width;
    column += kThreads % width;
    if (column < width) return;
    column -= width;
    ++row;
  }
};

// Brings `rows` rows of `columns` elements in by 16-byte copies, or element by element where they do not lie
// on 16-byte borders. Where exists(row, column) does not hold, zeros. One group of copies, also when there
// are none: WalkKeys waits for all groups but the last one.
template <class Tile, class Exists>
__device__ __forceinline__ void LoadMatrix(typename Tile::Element* to, int to_stride,
                                           const typename Tile::Element* from, int from_stride, int rows,
                                           int columns, Exists exists) {
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0 && from_stride % Tile::kChunk == 0 &&
                       columns % Tile::kChunk == 0;
  if (aligned) {
    for (CellWalk<Tile::kThreads> at(columns / Tile::kChunk); at.row < rows; at.Next()) {
      const int column = at.column * Tile::kChunk;
      const bool valid = exists(at.row, column);
      CpAsync16(to + at.row * to_stride + column, valid ? from + at.row * from_stride + column : from, valid);
    }
  } else {
    for (CellWalk<Tile::kThreads> at(columns); at.row < rows; at.Next())
      to[at.row * to_stride + at.column] =
          exists(at.row, at.column) ? from[at.row * from_stride + at.column] : typename Tile::Element{};
  }
  CpAsyncCommit();
}

// One step's keys or values, of which the first `count` are in the sequence so far.
template <class Tile>
__device__ void LoadKeys(const CudaAttention& a, const Rows& rows, int64_t step, int count,
                         const FlashShared<Tile>& shared) {
  const int64_t first = step * Tile::kKeys;
  const auto* const block = static_cast<const typename Tile::Element*>(a.kv.keys) +
                            rows.table[first / kPoolBlock] * a.kv.key_stride +
                            static_cast<int64_t>(rows.kv_head) * a.kv.head_dim * kPoolBlock +
                            first % kPoolBlock;
  LoadMatrix<Tile>(shared.k, Tile::kKeyStride, block, kPoolBlock, a.kv.head_dim, Tile::kKeys,
                   [count](int, int key) { return key < count; });
}

template <class Tile>
__device__ void LoadValues(const CudaAttention& a, const Rows& rows, int64_t step, int count,
                           const FlashShared<Tile>& shared) {
  const int64_t first = step * Tile::kKeys;
  const auto* const block =
      static_cast<const typename Tile::Element*>(a.kv.values) +
      rows.table[first / kPoolBlock] * a.kv.value_stride +
      (static_cast<int64_t>(rows.kv_head) * kPoolBlock + first % kPoolBlock) * a.kv.head_dim;
  LoadMatrix<Tile>(shared.v, Tile::kValueStride, block, a.kv.head_dim, Tile::kKeys, a.kv.head_dim,
                   [count](int key, int) { return key < count; });
}

// Whether the step's values from key `first` on, which not all rows see, are all finite.
template <class Tile>
__device__ bool FiniteFrom(int first, int count, int head_dim, const FlashShared<Tile>& shared) {
  bool finite = true;
  for (int i = static_cast<int>(threadIdx.x); i < (count - first) * head_dim; i += Tile::kThreads)
    finite =
        finite && Tile::Pool::Finite(shared.v[(first + i / head_dim) * Tile::kValueStride + i % head_dim]);
  return finite;
}

// Walks steps [begin, end) for the block's rows. At the end of each piece `state` holds its sums, and
// on_piece() is called. kOneToken: all rows see the same keys. Keys come in while values are used and the
// other way round. Queries must be in shared memory, or on their way there from the same warp; ends when no
// thread reads keys or values any more.
template <class Tile, bool kOneToken, class OnPiece>
__device__ __forceinline__ void WalkKeys(const CudaAttention& a, const Rows& rows, int64_t begin, int64_t end,
                                         const FlashShared<Tile>& shared, const FlashLane& at,
                                         FlashState<Tile>& state, OnPiece on_piece) {
  const int64_t length = rows.position + rows.tokens;  // positions that some row sees
  const auto count = [length](int64_t step) {
    return static_cast<int>(min(length - step * Tile::kKeys, static_cast<int64_t>(Tile::kKeys)));
  };
  LoadKeys(a, rows, begin, count(begin), shared);
  LoadValues(a, rows, begin, count(begin), shared);
  __syncwarp();
  const int row0 = at.warp * kWarpRows + at.group;
  const float factor[2] = {shared.factor[row0], shared.factor[row0 + 8]};
  const int num_rows = rows.tokens * rows.heads;
  int64_t seen[2];  // positions
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int row = row0 + 8 * pair;
    seen[pair] = row < num_rows ? rows.position + row / rows.heads + 1 : 0;
  }
  const int last_row = min(at.warp * kWarpRows + kWarpRows, num_rows) - 1;
  const int64_t warp_length =
      last_row >= at.warp * kWarpRows ? rows.position + last_row / rows.heads + 1 : int64_t{0};
  state.Clear();
  for (int64_t step = begin; step < end; ++step) {
    const int64_t first = step * Tile::kKeys;
    int visible[2];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)
      visible[pair] =
          static_cast<int>(max(int64_t{0}, min(seen[pair] - first, static_cast<int64_t>(Tile::kKeys))));
    const bool active = warp_length > first;  // otherwise the step would change nothing
    float s[Tile::kScoreTiles][4];
    CpAsyncWait<1>();
    SyncBlock<Tile>();
    if (active) Scores(s, shared, at, a.kv.head_dim);
    SyncBlock<Tile>();
    if (step + 1 < end)
      LoadKeys(a, rows, step + 1, count(step + 1), shared);
    else
      CpAsyncCommit();
    if (active) Softmax(s, state, factor, visible, at);
    CpAsyncWait<1>();
    SyncBlock<Tile>();
    bool careful = false;
    if constexpr (!kOneToken) {
      const int seen_by_all = static_cast<int>(max(int64_t{0}, rows.position + 1 - first));
      if (rows.tokens > 1 && seen_by_all < Tile::kKeys)
        careful = __syncthreads_or(!FiniteFrom(seen_by_all, count(step), a.kv.head_dim, shared)) != 0;
    }
    if (active) AddValues<Tile, !kOneToken>(state, s, shared, visible, careful, at, a.kv.head_dim);
    SyncBlock<Tile>();
    if (step + 1 < end)
      LoadValues(a, rows, step + 1, count(step + 1), shared);
    else
      CpAsyncCommit();
    if ((step + 1) % (kPiece / Tile::kKeys) == 0 || step + 1 == end) {
      SumWeights(state);
      on_piece();
    }
  }
}

// Writes value(tile, element, pair) for each of the thread's accumulators that exists to where row_at(row)
// says that its row begins.
template <class Tile, class RowAt, class Value>
__device__ __forceinline__ void StoreRows(const Rows& rows, int head_dim, const FlashLane& at, RowAt row_at,
                                          Value value) {
  const int left = head_dim - 2 * at.pair;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int row = at.warp * kWarpRows + at.group + 8 * pair;
    if (row >= rows.tokens * rows.heads) continue;
    float* const to = row_at(row) + 2 * at.pair;
#pragma unroll
    for (int n = 0; n < Tile::kDimTiles; ++n) {
      if (n * 8 < left) to[n * 8] = value(n, 2 * pair, pair);
      if (n * 8 + 1 < left) to[n * 8 + 1] = value(n, 2 * pair + 1, pair);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void WriteOutputs(const CudaAttention& a, const Rows& rows,
                                             const FlashState<Tile>& state, const FlashLane& at) {
  const float inverse[2] = {1.0f / state.l[0], 1.0f / state.l[1]};
  StoreRows<Tile>(
      rows, a.kv.head_dim, at,
      [&](int row) {
        return a.o + (rows.token + row / rows.heads) * a.o_stride +
               static_cast<int64_t>(rows.head + row % rows.heads) * a.kv.head_dim;
      },
      [&](int n, int i, int pair) { return FlashOutput(state.o[n][i], inverse[pair]); });
}

// Sums over pieces.
template <class Tile>
struct Total {
  float o[Tile::kTotalInShared ? 1 : Tile::kDimTiles][4];
  float l[2] = {0.0f, 0.0f};
  float m[2] = {kNoScore, kNoScore};
  float* shared;  // this thread's first element

  __device__ __forceinline__ explicit Total(float* in_shared) : shared(in_shared + threadIdx.x) {
#pragma unroll
    for (int n = 0; n < Tile::kDimTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) At(n, i) = 0.0f;
  }
  __device__ __forceinline__ float& At(int n, int i) {
    if constexpr (Tile::kTotalInShared)
      return shared[(n * 4 + i) * Tile::kThreads];
    else
      return o[n][i];
  }
  __device__ __forceinline__ void Add(const FlashState<Tile>& piece) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const FlashMerge merge(m[pair], piece.m[pair]);
      m[pair] = merge.m;
      l[pair] = merge.Sum(l[pair], piece.l[pair]);
#pragma unroll
      for (int n = 0; n < Tile::kDimTiles; ++n)
#pragma unroll
        for (int i = 2 * pair; i < 2 * pair + 2; ++i) At(n, i) = merge.Sum(At(n, i), piece.o[n][i]);
    }
  }
  __device__ __forceinline__ void MoveTo(FlashState<Tile>& state) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) state.l[pair] = l[pair];
#pragma unroll
    for (int n = 0; n < Tile::kDimTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[n][i] = At(n, i);
  }
};

// grid: (windows of packed tokens, then runs; KV heads and their chunks). Borders of windows and of runs cut
// the batch into tiles: a block takes the tile that begins where its window or its run begins.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    TileKernel(CudaAttention a, RowPlan plan, int windows, bool single_tokens) {
  const int32_t* const cu_seqlens = a.batch.cu_seqlens;
  int64_t begin = 0;
  int run = static_cast<int>(blockIdx.x) - windows;
  if (run < 0) {
    begin = int64_t{-1 - run} * plan.tokens;  // late ones, which cost most, first
    if (begin >= cu_seqlens[a.batch.num_seqs]) return;
    run = FindRun(cu_seqlens, a.batch.num_seqs, begin);
  } else {
    begin = cu_seqlens[run];
    if (begin % plan.tokens == 0) return;  // a window's
  }
  const int64_t run_end = cu_seqlens[run + 1];
  const int64_t window_end = (begin / plan.tokens + 1) * plan.tokens;
  const int64_t tokens = min(run_end, window_end) - begin;
  if (tokens <= 0 || (!single_tokens && run_end - cu_seqlens[run] == 1)) return;
  const Rows rows = RowsOf(a, plan, run, begin, static_cast<int>(tokens));
  const FlashShared<Tile> shared(DynamicShared<unsigned char>());
  const FlashLane at;
  ClearPadding(shared, a.kv.head_dim);
  LoadQueries(a, rows, shared, at);
  Total<Tile> total(shared.total);
  const int64_t steps = (rows.position + rows.tokens + Tile::kKeys - 1) / Tile::kKeys;
  FlashState<Tile> state;
  WalkKeys<Tile, false>(a, rows, 0, steps, shared, at, state, [&] {
    total.Add(state);
    state.Clear();
  });
  total.MoveTo(state);
  WriteOutputs(a, rows, state, at);
}

// Partial sums in the scratch: [run of the wave][piece][head] of head_dim sums, l and m.
struct Partials {
  float* at;
  int pieces;  // room per run
  int row;     // floats
  int num_heads;
  __host__ __device__ Partials(const CudaAttention& a, int room)
      : at(a.scratch), pieces(room), row(a.kv.head_dim + 2), num_heads(a.num_heads) {}
  __device__ float* Row(int run_of_wave, int64_t piece, int head) const {
    return at + ((static_cast<int64_t>(run_of_wave) * pieces + piece) * num_heads + head) * row;
  }
};

// The rows of one token.
template <class Tile>
__device__ __forceinline__ void StorePartial(const Partials& partials, int run_of_wave, int64_t piece,
                                             const Rows& rows, int head_dim, const FlashState<Tile>& state,
                                             const FlashLane& at) {
  float* const first = partials.Row(run_of_wave, piece, rows.head);
  StoreRows<Tile>(
      rows, head_dim, at, [&](int row) { return first + row * partials.row; },
      [&](int n, int i, int) { return state.o[n][i]; });
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int row = at.group + 8 * pair;
    if (at.pair != 0 || row >= rows.heads) continue;
    first[row * partials.row + head_dim] = state.l[pair];
    first[row * partials.row + head_dim + 1] = state.m[pair];
  }
}

// Blocks of a multiprocessor, which bounds the registers. Shared memory allows 4 to 9 blocks of most tiles,
// so that their registers are free; left to itself the compiler saves them and spills.
template <class Tile>
constexpr int kSplitMinBlocks = Tile::kDim <= 32 && Tile::kTensorCores ? 11 : 1;

// One warp a block. grid: (runs of the wave, KV heads and their chunks, pieces; more pieces go round).
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, kSplitMinBlocks<Tile>)
    SplitKernel(CudaAttention a, RowPlan plan, Partials partials, int first_run) {
  const int run = first_run + static_cast<int>(blockIdx.x);
  const int32_t token = a.batch.cu_seqlens[run];
  if (a.batch.cu_seqlens[run + 1] - token != 1) return;
  const int64_t pieces = a.batch.positions[run] / kPiece + 1;
  if (blockIdx.z >= pieces) return;
  const Rows rows = RowsOf(a, plan, run, token, 1);
  const FlashShared<Tile> shared(DynamicShared<unsigned char>());
  const FlashLane at;
  ClearPadding(shared, a.kv.head_dim);
  LoadQueries(a, rows, shared, at);
  constexpr int64_t kSteps = kPiece / Tile::kKeys;
  const int64_t steps = rows.position / Tile::kKeys + 1;
  for (int64_t piece = blockIdx.z; piece < pieces; piece += gridDim.z) {
    FlashState<Tile> state;
    WalkKeys<Tile, true>(a, rows, piece * kSteps, min(steps, (piece + 1) * kSteps), shared, at, state, [] {});
    if (pieces == 1)
      WriteOutputs(a, rows, state, at);
    else
      StorePartial(partials, static_cast<int>(blockIdx.x), piece, rows, a.kv.head_dim, state, at);
  }
}

// Merges the pieces of a run's head, in order. grid: (runs of the wave, heads, columns).
__global__ void __launch_bounds__(kCombineThreads)
    CombineKernel(CudaAttention a, Partials partials, int first_run) {
  const int run = first_run + static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.z) * kCombineThreads + static_cast<int>(threadIdx.x);
  const int64_t token = a.batch.cu_seqlens[run];
  const int64_t pieces = a.batch.positions[run] / kPiece + 1;
  const int head_dim = a.kv.head_dim;
  if (a.batch.cu_seqlens[run + 1] - token != 1 || pieces == 1 || column >= head_dim) return;
  float o = 0.0f;
  float l = 0.0f;
  float m = kNoScore;
#pragma unroll 4
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const float* const from = partials.Row(static_cast<int>(blockIdx.x), piece, head);
    const FlashMerge merge(m, from[head_dim + 1]);
    m = merge.m;
    l = merge.Sum(l, from[head_dim]);
    o = merge.Sum(o, from[column]);
  }
  a.o[token * a.o_stride + static_cast<int64_t>(head) * head_dim + column] = FlashOutput(o, 1.0f / l);
}

template <class Pool, int kDim>
class Launcher {
 public:
  Launcher(const CudaAttention& a, cudaStream_t stream)
      : a_(a), stream_(stream), group_(a.num_heads / a.kv.num_kv_heads) {}

  void Run() const {
    const int64_t pieces = (a_.max_positions + kPiece - 1) / kPiece;
    const int64_t run_floats = pieces * a_.num_heads * (a_.kv.head_dim + 2);
    int64_t wave = a_.batch.num_seqs;  // runs whose partial sums fit together
    if (pieces > 1) wave = min(wave, a_.scratch_floats / run_floats);
    if (a_.max_seq_tokens > 1 || wave == 0) Tiles(wave == 0);
    if (wave == 0) return;
    for (int64_t first = 0; first < a_.batch.num_seqs; first += wave)
      Wave(static_cast<int>(first), static_cast<int>(min(wave, a_.batch.num_seqs - first)),
           static_cast<int>(pieces));
  }

 private:
  using TileOf = FlashTile<Pool, kDim, kDim <= 128 ? 4 : 1>;
  using PieceOf = FlashTile<Pool, kDim, 1>;

  unsigned HeadBlocks(const RowPlan& plan) const {
    return static_cast<unsigned>(a_.kv.num_kv_heads) * static_cast<unsigned>(plan.chunks);
  }

  void Tiles(bool single_tokens) const {
    const RowPlan plan = PlanRows(TileOf::kRows, group_);
    const int windows = (a_.batch.num_tokens + plan.tokens - 1) / plan.tokens;
    const dim3 grid(static_cast<unsigned>(windows) + static_cast<unsigned>(a_.batch.num_seqs),
                    HeadBlocks(plan));
    LaunchCuda(TileKernel<TileOf>, grid, dim3(TileOf::kThreads), TileOf::kBytes + TileOf::kTotalBytes,
               stream_, a_, plan, windows, single_tokens);
  }

  void Wave(int first_run, int runs, int pieces) const {
    const RowPlan plan = PlanRows(PieceOf::kRows, group_);
    const Partials partials(a_, pieces);
    const int64_t wanted = kSplitBlocks / (static_cast<int64_t>(runs) * HeadBlocks(plan));
    const int64_t depth =
        min(static_cast<int64_t>(pieces), max(wanted, static_cast<int64_t>(kMinSplitPieces)));
    const auto grid_x = static_cast<unsigned>(runs);
    LaunchCuda(SplitKernel<PieceOf>,
               dim3(grid_x, HeadBlocks(plan), static_cast<unsigned>(min(depth, int64_t{65535}))),
               dim3(PieceOf::kThreads), PieceOf::kBytes, stream_, a_, plan, partials, first_run);
    if (pieces == 1) return;
    const auto columns = static_cast<unsigned>((a_.kv.head_dim + kCombineThreads - 1) / kCombineThreads);
    LaunchCuda(CombineKernel, dim3(grid_x, static_cast<unsigned>(a_.num_heads), columns),
               dim3(kCombineThreads), 0, stream_, a_, partials, first_run);
  }

  const CudaAttention& a_;
  const cudaStream_t stream_;
  const int group_;
};

template <class Pool>
void LaunchForPool(const CudaAttention& a, cudaStream_t stream) {
  if (a.kv.head_dim <= 32) return Launcher<Pool, 32>(a, stream).Run();
  if (a.kv.head_dim <= 64) return Launcher<Pool, 64>(a, stream).Run();
  if (a.kv.head_dim <= 128) return Launcher<Pool, 128>(a, stream).Run();
  Launcher<Pool, 256>(a, stream).Run();
}

}  // namespace

void LaunchCudaAttention(const CudaAttention& attention, cudaStream_t stream) {
  if (attention.batch.num_tokens == 0 || attention.batch.num_seqs == 0) return;
  switch (attention.kv.type) {
    case CudaKvType::kF32:
      return LaunchForPool<PoolF32>(attention, stream);
    case CudaKvType::kF16:
      return LaunchForPool<PoolF16>(attention, stream);
    case CudaKvType::kBF16:
      return LaunchForPool<PoolBf16>(attention, stream);
  }
}

}  // namespace weir
