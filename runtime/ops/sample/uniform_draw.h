// Randomness as a function of a seed and a position, the same on the host and in kernels.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define WEIR_HOST_DEVICE __host__ __device__
#else
#define WEIR_HOST_DEVICE
#endif

namespace weir {

struct PhiloxBlock {
  uint32_t word[4];
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
WEIR_HOST_DEVICE inline PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// In [0, 1), 53 bits, a function of its arguments only.
WEIR_HOST_DEVICE inline double UniformDraw(uint64_t seed, uint64_t token_index) {
  const PhiloxBlock counter = {
      {static_cast<uint32_t>(token_index), static_cast<uint32_t>(token_index >> 32), 0, 0}};
  const PhiloxBlock r = Philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return static_cast<double>((uint64_t{r.word[0]} << 32 | r.word[1]) >> 11) * 0x1p-53;
}

}  // namespace weir
