// RaggedBatch: the tokens of one step, many sequences packed end to end; prefill chunks and single tokens
// mix.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace weir {

// Prefill kernels may work in chunks of this many tokens, whose borders are multiples of it in absolute
// position: never of the load, so that a token's result does not depend on its batch-mates.
inline constexpr int kChunkTokens = 64;

// Undecayed states keep two f32 levels; the inner one is folded into the outer when the absolute position of
// the token about to be added is a multiple of this.
inline constexpr int kFoldTokens = 1024;

struct RaggedBatch {
  int num_tokens = 0;
  int num_seqs = 0;
  int max_seq_tokens = 0;  // longest run
  TensorView cu_seqlens;   // i32 [num_seqs + 1]; run n owns tokens [cu_seqlens[n], cu_seqlens[n + 1])
  TensorView slots;        // i32 [num_seqs]; row of every state tensor
  TensorView positions;    // i64 [num_seqs]; absolute position of the run's first token
  TensorView
      block_tables;  // i32 [num_seqs, max_blocks]; KV blocks of each run in order; empty without paged state
  int64_t max_positions = 0;  // every token's position is below it; 0: as far as block_tables reach
};

}  // namespace weir
