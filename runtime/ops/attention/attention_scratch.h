// How much scratch a GPU wants for the sequences that decode together.
#pragma once

#include <cstdint>

#include "runtime/ops/attention/attention.h"

namespace weir {

// The `max_positions` of AttentionScratchElements with which the partial sums of `seqs` sequences of up to
// `positions` each fit together. A sequence's last piece counts whole.
inline int64_t AttentionScratchPositions(int64_t positions, int64_t seqs) {
  return (positions + kAttentionPieceTokens - 1) / kAttentionPieceTokens * kAttentionPieceTokens * seqs;
}

}  // namespace weir
