// The CPU kernel's view of its work: some channels of one run.
#pragma once

#include <cstdint>

namespace weir {

// Channels of one block; what a worker takes at once.
inline constexpr int64_t kScanChannels = 64;

// Pointers are at the run's first token and the block's first channel; strides are elements between tokens.
struct ScanBlock {
  const float* u = nullptr;        // [tokens][channels]
  const float* dt = nullptr;       // [tokens][channels]
  const float* z = nullptr;        // [tokens][channels] or null
  float* y = nullptr;              // [tokens][channels]
  const float* b = nullptr;        // [tokens][state_dim]
  const float* c = nullptr;        // [tokens][state_dim]
  const float* dt_bias = nullptr;  // [channels] or null
  const float* a = nullptr;        // [state_dim][channels]
  const float* d = nullptr;        // [channels]
  float* state = nullptr;          // [state_dim][channels]
  int64_t u_stride = 0;
  int64_t dt_stride = 0;
  int64_t z_stride = 0;
  int64_t y_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  int64_t a_stride = 0;      // elements between two n
  int64_t state_stride = 0;  // elements between two n
  int64_t state_dim = 0;
  int64_t channels = 0;  // of this block, at most kScanChannels
  int64_t tokens = 0;
};

}  // namespace weir
