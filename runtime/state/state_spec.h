// What a model keeps per sequence, declared by its mixers and laid out by the arena and the KV pool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor/dtype.h"

namespace weir {

// One tensor of fixed state: f32, at most three dimensions.
struct StateSpec {
  std::string name;
  std::vector<int64_t> shape;

  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
};

// Paged state: per layer, keys and values of every token, in blocks of kKvBlockTokens.
struct PagedSpec {
  int num_layers = 0;  // 0: the model keeps no paged state
  int num_kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::kF16;

  int64_t block_bytes(int block_tokens) const {  // all layers
    return int64_t{2} * num_layers * num_kv_heads * head_dim * block_tokens *
           static_cast<int64_t>(DTypeBytes(dtype));
  }
};

}  // namespace weir
