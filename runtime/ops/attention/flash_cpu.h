// The single-threaded parts of CPU flash attention, compiled once per instruction set. A row is one query
// head of one token; rows of one KV head share every load of its keys and values.
//
// State of a row, RowStateFloats(head_dim) floats: the unnormalised output [PaddedDim(head_dim)], the sum of
// weights as 16 lanes, and the running maximum of the scores (times log2 e) with 15 unused floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tensor/dtype.h"

namespace weir {

// Rows of several tokens for one KV head, [token][head of the group], or of one token for several adjacent KV
// heads, [KV head][head of the group]. Pointers are to the first head.
struct FlashRows {
  const float* q = nullptr;  // [num_tokens][num_kv_heads · group · head_dim], tokens q_stride apart
  float* o = nullptr;        // same, o_stride apart
  int64_t q_stride = 0;
  int64_t o_stride = 0;
  int num_tokens = 0;
  int num_kv_heads = 1;
  int group = 0;  // query heads per KV head
  int head_dim = 0;
  int64_t position = 0;  // of the first token
  float scale = 0.0f;
  DType dtype = DType::kF32;          // of the pool
  const std::byte* keys = nullptr;    // of the first KV head in block 0
  const std::byte* values = nullptr;  // same
  int64_t key_block_bytes = 0;        // from one block to the next
  int64_t value_block_bytes = 0;
  const int32_t* block_table = nullptr;
};

constexpr int PaddedDim(int head_dim) { return (head_dim + 15) / 16 * 16; }
constexpr int RowStateFloats(int head_dim) { return PaddedDim(head_dim) + 32; }
// Scratch of one thread for calls of up to `max_rows` rows.
int64_t FlashScratchFloats(int max_rows, int head_dim);

// All pieces of all rows. The tokens must lie within one KV block.
void FlashTile(const FlashRows& rows, float* scratch);
// One piece of one token's rows: leaves a state per row at `partial`. `rows.o` is not used.
void FlashPiece(const FlashRows& rows, int64_t piece, float* partial, float* scratch);
// Merges one token's pieces, in order, into its output. `partials` is the first piece's states of these rows;
// those of the next piece follow `piece_rows` row states later.
void FlashCombine(const FlashRows& rows, int64_t num_pieces, const float* partials, int64_t piece_rows,
                  float* scratch);

// y[i] = 2^x[i] for x <= 0; everything below -125 counts as -125. NaN stays NaN. The kernels' own
// exponential, callable for its accuracy test. `count` is a multiple of 16.
void FlashExp2(const float* x, float* y, int64_t count);

}  // namespace weir
