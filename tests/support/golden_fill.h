// How tests/golden fills a tensor: value i is a hash of the tensor's name and i, the same in generate.py.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weir::testing {

inline uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

inline uint64_t SplitMix64(uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

// offset + scale · u, u in [-1, 1), rounded to f32.
inline std::vector<float> GoldenFill(std::string_view name, size_t count, double scale, double offset) {
  const uint64_t hash = Fnv1a(name);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const double u = static_cast<double>(SplitMix64(hash + i) >> 40) / 16777216.0;
    values[i] = static_cast<float>(offset + scale * (2 * u - 1));
  }
  return values;
}

}  // namespace weir::testing
