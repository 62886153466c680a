// Rows of flash attention walking the blocks of a paged sequence. Everything here runs on one thread and
// takes its memory from the caller.
#include "runtime/ops/attention/flash_cpu.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/ops/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/attention/flash_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/ops/attention/flash_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

constexpr int kPieceBlocks = kAttentionPieceTokens / kKvBlockTokens;

// Where the parts of one thread's scratch lie; see FlashScratchFloats.
struct Workspace {
  Workspace(float* scratch, int num_rows, int head_dim) {
    q = scratch;
    total = q + static_cast<int64_t>(num_rows) * PaddedDim(head_dim);
    piece = total + static_cast<int64_t>(num_rows) * RowStateFloats(head_dim);
    scores = piece + static_cast<int64_t>(num_rows) * RowStateFloats(head_dim);
    tail = scores + kRowChunk * kKeys;
  }
  float* q;       // [rows][PaddedDim], times scale · log2 e
  float* total;   // [rows] row states: all pieces so far
  float* piece;   // [rows] row states: the piece at hand
  float* scores;  // [kRowChunk][kKeys]
  float* tail;    // [kKeys][kLanes]: the columns of the values that do not fill a vector
};

void InitStates(float* states, int num_rows, int head_dim) {
  const int stride = RowStateFloats(head_dim);
  for (int r = 0; r < num_rows; ++r) {
    std::memset(states, 0, sizeof(float) * static_cast<size_t>(stride));
    states[PaddedDim(head_dim) + 16] = -std::numeric_limits<float>::infinity();
    states += stride;
  }
}

void PackQueries(const FlashRows& rows, float* packed) {
  const float factor = rows.scale * 1.44269504088896341f;
  for (int t = 0; t < rows.num_tokens; ++t) {
    for (int g = 0; g < rows.num_kv_heads * rows.group; ++g) {
      const float* q = rows.q + t * rows.q_stride + g * rows.head_dim;
      for (int i = 0; i < rows.head_dim; ++i) packed[i] = q[i] * factor;
      packed += PaddedDim(rows.head_dim);
    }
  }
}

// One row's piece sums into its totals.
void MergeRow(const float* piece, float* total, int head_dim) {
  const D d;
  const int padded = PaddedDim(head_dim);
  const V piece_max = hn::Set(d, piece[padded + 16]);
  const V total_max = hn::Set(d, total[padded + 16]);
  const V new_max = hn::Max(total_max, piece_max);
  const V piece_factor = Exp2(d, hn::Sub(piece_max, new_max));
  const V total_factor = Exp2(d, hn::Sub(total_max, new_max));
  for (int i = 0; i < padded + 16; i += kLanes) {
    const V scaled = hn::Mul(hn::LoadU(d, total + i), total_factor);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, piece + i), piece_factor, scaled), d, total + i);
  }
  total[padded + 16] = hn::GetLane(new_max);
}

void FinishRow(float* total, float* o, int head_dim) {
  const D d;
  const int padded = PaddedDim(head_dim);
  const V sum = hn::SumOfLanes(d, hn::LoadU(d, total + padded));
  for (int i = 0; i < padded; i += kLanes) hn::StoreU(hn::Div(hn::LoadU(d, total + i), sum), d, total + i);
  std::memcpy(o, total, sizeof(float) * static_cast<size_t>(head_dim));
}

template <class T>
struct Block {
  const T* keys;       // [head_dim][kKeys]
  const T* values;     // [kKeys][head_dim]
  const T* next_keys;  // of the block read next, for prefetching
  const T* next_values;
  int valid;            // keys that the first token's rows may see
  int valid_per_token;  // by how much that grows from token to token
};

template <class T>
Block<T> BlockAt(const FlashRows& rows, int64_t index, int head) {
  const int64_t block = rows.block_table[index];
  const int64_t offset = int64_t{head} * kKeys * rows.head_dim;
  const T* keys = reinterpret_cast<const T*>(rows.keys + block * rows.key_block_bytes) + offset;
  const T* values = reinterpret_cast<const T*>(rows.values + block * rows.value_block_bytes) + offset;
  return {keys, values, keys, values, kKeys, 0};
}

// Copies the last `head_dim % kLanes` columns of the values as f32 rows of one vector, zero-filled.
template <class T>
void CopyTail(const T* values, int head_dim, int valid, float* tail) {
  const int begin = head_dim / kLanes * kLanes;
  const int count = head_dim - begin;
  const hn::CappedTag<float, 8> d8;
  const int step = static_cast<int>(hn::Lanes(d8));
  for (int j = 0; j < valid; ++j) {
    const T* row = values + static_cast<int64_t>(j) * head_dim + begin;
    int i = 0;
    for (; i + step <= count; i += step) hn::StoreU(LoadF32(d8, row + i), d8, tail + i);
    for (; i < count; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        tail[i] = row[i];
      } else {
        tail[i] = row[i].ToFloat();
      }
    }
    std::fill(tail + count, tail + kLanes, 0.0f);
    tail += kLanes;
  }
}

// C = scale · C + weights [kRows][kKeys], positions [begin, end), times the block's values.
template <int kRows, bool kAhead, class T>
HWY_INLINE void AddValues(const float* weights, const T* values, const float* tail, int head_dim, int begin,
                          int end, const float* scale, float* c, size_t ldc, const T* ahead) {
  const float* a = weights + begin;
  const T* b = values + static_cast<int64_t>(begin) * head_dim;
  const int depth = end - begin;
  int i = 0;
  for (; i + kVecTile * kLanes <= head_dim; i += kVecTile * kLanes)
    MultiplyTile<kRows, kVecTile, false, kAhead>(a, kKeys, b + i, head_dim, depth, scale, c + i, ldc,
                                                 ahead + i);
  if constexpr (kVecTile > 2) {
    if (i + 2 * kLanes <= head_dim) {
      MultiplyTile<kRows, 2, false, kAhead>(a, kKeys, b + i, head_dim, depth, scale, c + i, ldc, ahead + i);
      i += 2 * kLanes;
    }
  }
  if (i + kLanes <= head_dim) {
    MultiplyTile<kRows, 1, false, kAhead>(a, kKeys, b + i, head_dim, depth, scale, c + i, ldc, ahead + i);
    i += kLanes;
  }
  if (i < head_dim)
    MultiplyTile<kRows, 1, false, false>(a, kKeys, tail + begin * kLanes, kLanes, depth, scale, c + i, ldc,
                                         tail);
}

// Calls f with the number of rows as a constant, kRowTile at most.
template <class F>
HWY_INLINE void WithRows(int num_rows, F f) {
  switch (num_rows) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 5:
      return f(std::integral_constant<int, 5>());
    default:
      return f(std::integral_constant<int, kRowTile>());
  }
}

// One block's contribution to up to kRowChunk rows. q: [rows][PaddedDim]; states: [rows]; valid: keys each
// row sees.
template <bool kAhead, class T>
void RowsTimesBlock(int num_rows, const Block<T>& block, const float* q, const int* valid, int head_dim,
                    float* states, float* scores, const float* tail) {
  const int padded = PaddedDim(head_dim);
  const int stride = RowStateFloats(head_dim);
  for (int r = 0; r < num_rows; r += kRowTile) {
    WithRows(num_rows - r, [&](auto rows) {
      for (int i = 0; i < kKeys; i += kVecTile * kLanes)
        MultiplyTile<rows, kVecTile, true, kAhead>(q + r * padded, padded, block.keys + i, kKeys, head_dim,
                                                   nullptr, scores + r * kKeys + i, kKeys,
                                                   block.next_keys + i);
    });
  }
  HWY_ALIGN float factors[kRowChunk];
  SoftmaxRows(num_rows, valid, scores, states + padded, stride, factors);
  for (int r = 0; r < num_rows; r += kRowTile) {
    const float* weights = scores + r * kKeys;
    float* c = states + r * stride;
    const int count = std::min(kRowTile, num_rows - r);
    const int common = *std::min_element(valid + r, valid + r + count);
    WithRows(count, [&](auto rows) {
      AddValues<rows, kAhead>(weights, block.values, tail, head_dim, 0, common, factors + r, c, stride,
                              block.next_values);
    });
    // The rows' own last keys one by one: a weight of zero would still let a NaN of a later position in.
    constexpr float kOne = 1.0f;
    for (int i = 0; i < count; ++i) {
      if (valid[r + i] > common)
        AddValues<1, false>(weights + i * kKeys, block.values, tail, head_dim, common, valid[r + i], &kOne,
                            c + i * stride, stride, block.values);
    }
  }
}

// One block's contribution to the rows of one KV head. q and states start at the first of them.
template <bool kAhead, class T>
void AllRowsTimesBlock(const FlashRows& rows, const Block<T>& block, const Workspace& work, const float* q,
                       float* states) {
  const int head_dim = rows.head_dim;
  const int num_rows = rows.num_tokens * rows.group;
  if (head_dim % kLanes != 0)
    CopyTail(block.values, head_dim, block.valid + (rows.num_tokens - 1) * block.valid_per_token, work.tail);
  const int chunk = std::min(kRowChunk, 2 * kRowTile);
  for (int r = 0; r < num_rows; r += chunk) {
    const int count = std::min(chunk, num_rows - r);
    int valid[kRowChunk];
    for (int i = 0; i < count; ++i) valid[i] = block.valid + (r + i) / rows.group * block.valid_per_token;
    const float* row_q = q + static_cast<int64_t>(r) * PaddedDim(head_dim);
    float* state = states + static_cast<int64_t>(r) * RowStateFloats(head_dim);
    // The first rows bring the next lines in, so the others find them in cache.
    if (kAhead && r == 0) {
      RowsTimesBlock<true>(count, block, row_q, valid, head_dim, state, work.scores, work.tail);
    } else {
      RowsTimesBlock<false>(count, block, row_q, valid, head_dim, state, work.scores, work.tail);
    }
  }
}

// Piece `piece` of all rows into fresh states; `last` is the block that holds the tokens themselves. The
// heads of a block lie side by side, so they are read one after the other.
template <bool kAhead, class T>
void RunPiece(const FlashRows& rows, int64_t piece, int64_t last, const Workspace& work, float* states) {
  const int64_t rows_per_head = int64_t{rows.num_tokens} * rows.group;
  InitStates(states, rows.num_kv_heads * static_cast<int>(rows_per_head), rows.head_dim);
  const int64_t end = std::min((piece + 1) * kPieceBlocks, last + 1);
  for (int64_t index = piece * kPieceBlocks; index < end; ++index) {
    for (int head = 0; head < rows.num_kv_heads; ++head) {
      Block<T> block = BlockAt<T>(rows, index, head);
      if (index == last) {
        block.valid = static_cast<int>(rows.position % kKeys) + 1;
        block.valid_per_token = 1;
      }
      const bool last_head = head + 1 == rows.num_kv_heads;
      if (kAhead && (!last_head || index + 1 < end)) {
        const Block<T> next = last_head ? BlockAt<T>(rows, index + 1, 0) : BlockAt<T>(rows, index, head + 1);
        block.next_keys = next.keys;
        block.next_values = next.values;
      }
      AllRowsTimesBlock<kAhead>(rows, block, work, work.q + head * rows_per_head * PaddedDim(rows.head_dim),
                                states + head * rows_per_head * RowStateFloats(rows.head_dim));
    }
  }
}

template <class T>
void TileOf(const FlashRows& rows, float* scratch) {
  const int num_rows = rows.num_tokens * rows.group;
  const int stride = RowStateFloats(rows.head_dim);
  const Workspace work(scratch, num_rows, rows.head_dim);
  PackQueries(rows, work.q);
  InitStates(work.total, num_rows, rows.head_dim);
  const int64_t last = rows.position / kKeys;
  for (int64_t piece = 0; piece <= last / kPieceBlocks; ++piece) {
    RunPiece<false, T>(rows, piece, last, work, work.piece);
    for (int r = 0; r < num_rows; ++r)
      MergeRow(work.piece + r * stride, work.total + r * stride, rows.head_dim);
  }
  for (int r = 0; r < num_rows; ++r)
    FinishRow(work.total + r * stride,
              rows.o + r / rows.group * rows.o_stride + r % rows.group * rows.head_dim, rows.head_dim);
}

template <class T>
void PieceOf(const FlashRows& rows, int64_t piece, float* partial, float* scratch) {
  const Workspace work(scratch, rows.num_kv_heads * rows.group, rows.head_dim);
  PackQueries(rows, work.q);
  RunPiece<true, T>(rows, piece, rows.position / kKeys, work, partial);
}

void Tile(const FlashRows& rows, float* scratch) {
  if (rows.dtype == DType::kBF16) return TileOf<BF16>(rows, scratch);
  if (rows.dtype == DType::kF16) return TileOf<F16>(rows, scratch);
  TileOf<float>(rows, scratch);
}

void Piece(const FlashRows& rows, int64_t piece, float* partial, float* scratch) {
  if (rows.dtype == DType::kBF16) return PieceOf<BF16>(rows, piece, partial, scratch);
  if (rows.dtype == DType::kF16) return PieceOf<F16>(rows, piece, partial, scratch);
  PieceOf<float>(rows, piece, partial, scratch);
}

void Combine(const FlashRows& rows, int64_t num_pieces, const float* partials, int64_t piece_rows,
             float* scratch) {
  const int stride = RowStateFloats(rows.head_dim);
  const int num_rows = rows.num_kv_heads * rows.group;
  for (int g = 0; g < num_rows; ++g) {
    InitStates(scratch, 1, rows.head_dim);
    for (int64_t piece = 0; piece < num_pieces; ++piece)
      MergeRow(partials + (piece * piece_rows + g) * stride, scratch, rows.head_dim);
    FinishRow(scratch, rows.o + static_cast<int64_t>(g) * rows.head_dim, rows.head_dim);
  }
}

void Exp2Array(const float* x, float* y, int64_t count) {
  const D d;
  for (int64_t i = 0; i < count; i += kLanes) hn::StoreU(Exp2(d, hn::LoadU(d, x + i)), d, y + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(Tile);
HWY_EXPORT(Piece);
HWY_EXPORT(Combine);
HWY_EXPORT(Exp2Array);

int64_t FlashScratchFloats(int max_rows, int head_dim) {
  const int64_t per_row = PaddedDim(head_dim) + 2 * RowStateFloats(head_dim);
  return max_rows * per_row + 16 * kKvBlockTokens + kKvBlockTokens * 16;
}

void FlashTile(const FlashRows& rows, float* scratch) { HWY_DYNAMIC_DISPATCH(Tile)(rows, scratch); }

void FlashPiece(const FlashRows& rows, int64_t piece, float* partial, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Piece)(rows, piece, partial, scratch);
}

void FlashCombine(const FlashRows& rows, int64_t num_pieces, const float* partials, int64_t piece_rows,
                  float* scratch) {
  HWY_DYNAMIC_DISPATCH(Combine)(rows, num_pieces, partials, piece_rows, scratch);
}

void FlashExp2(const float* x, float* y, int64_t count) { HWY_DYNAMIC_DISPATCH(Exp2Array)(x, y, count); }

}  // namespace weir
#endif  // HWY_ONCE
