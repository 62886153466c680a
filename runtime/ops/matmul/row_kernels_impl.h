// The register tile, written once over a policy that names vectors and instructions. Each including file is
// compiled for one instruction set: hence the unnamed namespace and no standard library functions.
//
// A policy has: Vec (kLanes f32), Weight (one step of kLanes outputs, kWeightBytes each in memory), X (one
// step of a row, broadcast), kXStepBytes, kMaxRows, Wide(rows) and Narrow(rows) (vectors of outputs per
// tile), and Zero, LoadWeight, LoadX, MulAdd, Load, Store, Add, Mul; those of int8 also StoreWide, of a
// Weight as bf16.
#pragma once

#include "runtime/ops/matmul/row_kernels.h"

namespace weir::matmul {
namespace {

// A policy that reads a step of a whole panel at once has LoadPanel instead of LoadWeight.
template <class I>
concept LoadsPanels = requires {
  I::LoadPanel;
};

// Where vector v of a run of panels lies; panels are `panel_bytes` apart.
template <class I>
constexpr int64_t WeightAt(int v, int64_t panel_bytes) {
  constexpr int kVectors = kPanelOutputs / I::kLanes;  // of a panel
  const int output = v % kVectors * I::kLanes;
  return v / kVectors * panel_bytes + (I::kWeightBytes == 2 ? Int8PairAt(output) : output * 4);
}

// A step of V vectors of outputs.
template <class I, int V>
inline void LoadWeights(const std::byte* w, int64_t panel_bytes, typename I::Weight (&weight)[V]) {
  if constexpr (LoadsPanels<I>) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v += 2) I::LoadPanel(w + WeightAt<I>(v, panel_bytes), weight[v], weight[v + 1]);
  } else {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) weight[v] = I::LoadWeight(w + WeightAt<I>(v, panel_bytes));
  }
}

// The same step in bf16 panels, whose vectors lie one behind the other.
template <class I>
constexpr int64_t WideAt(int v, int64_t panel_bytes) {
  constexpr int kVectors = kPanelOutputs / I::kLanes;
  return v / kVectors * panel_bytes + v % kVectors * I::kLanes * 4;
}

// Scales, adds the bias and the old y, in this order, and writes `valid` of the V * kLanes outputs.
template <class I, int V>
inline void Finish(const typename I::Vec* acc, const RowBlock& block, int64_t row, int64_t first,
                   int64_t valid) {
  float* y = block.y + row * block.y_stride + first;
  const float* bias = block.bias == nullptr ? nullptr : block.bias + first;
  const float* scale = block.scale == nullptr ? nullptr : block.scale + first;
  if (valid >= V * I::kLanes) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      typename I::Vec sum = acc[v];
      if (scale != nullptr) sum = I::Mul(sum, I::Load(scale + v * I::kLanes));
      if (bias != nullptr) sum = I::Add(sum, I::Load(bias + v * I::kLanes));
      if (block.accumulate) sum = I::Add(I::Load(y + v * I::kLanes), sum);
      I::Store(y + v * I::kLanes, sum);
    }
    return;
  }
  alignas(64) float sums[V * I::kLanes];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) I::Store(sums + v * I::kLanes, acc[v]);
  for (int64_t c = 0; c < valid; ++c) {
    float sum = sums[c];
    if (scale != nullptr) sum = sum * scale[c];
    if (bias != nullptr) sum = sum + bias[c];
    if (block.accumulate) sum = y[c] + sum;
    y[c] = sum;
  }
}

// R rows times V vectors of outputs from output `first` of the run on: one chain of additions per output, in
// the order of k.
template <class I, int R, int V>
inline void Tile(const RowBlock& block, int64_t first) {
  constexpr int kWeightStepBytes = kPanelOutputs * I::kWeightBytes;
  constexpr int kRowBytes = kChunkSteps * I::kXStepBytes;
  const int64_t panel_bytes = block.steps * kWeightStepBytes;
  const int vector = static_cast<int>(first / I::kLanes);
  const std::byte* w = block.w + WeightAt<I>(vector, panel_bytes);
  std::byte* wide = nullptr;
  if (I::kWeightBytes == 2 && block.widened != nullptr)
    wide = block.widened + WideAt<I>(vector, 2 * panel_bytes);
  const std::byte* x = block.x;
  typename I::Vec acc[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) acc[r][v] = I::Zero();
  }
  for (int64_t left = block.steps; left > 0; left -= kChunkSteps) {
    const int64_t steps = left < kChunkSteps ? left : kChunkSteps;
    for (int64_t s = 0; s < steps; ++s) {
      typename I::Weight weight[V];
      LoadWeights<I, V>(w, panel_bytes, weight);
      if constexpr (I::kWeightBytes == 2) {
        if (wide != nullptr) {
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) I::StoreWide(wide + WideAt<I>(v, 2 * panel_bytes), weight[v]);
          wide += kStepBytes;
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const typename I::X value = I::LoadX(x + r * kRowBytes + s * I::kXStepBytes);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) acc[r][v] = I::MulAdd(acc[r][v], weight[v], value);
      }
      w += kWeightStepBytes;
    }
    x += R * kRowBytes;
  }
  const int64_t valid = block.outputs - first;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) Finish<I, V>(acc[r], block, r, first, valid);
}

template <class I, int R>
void Rows(const RowBlock& block) {
  constexpr int kWide = I::Wide(R);
  constexpr int kNarrow = I::Narrow(R);
  int64_t first = 0;
  for (; block.outputs - first >= kWide * I::kLanes; first += kWide * I::kLanes)
    Tile<I, R, kWide>(block, first);
  for (; first < block.outputs; first += kNarrow * I::kLanes) Tile<I, R, kNarrow>(block, first);
}

// f32 activations in chunks of kSteps values per row; with kRound each is rounded to the nearest bf16 (ties
// to even, NaN stays NaN) and kept as f32.
template <int kSteps, bool kRound>
void PackF32(const float* x, int64_t x_stride, int64_t rows, int64_t k, std::byte* packed) {
  float* out = reinterpret_cast<float*>(packed);
  for (int64_t begin = 0; begin < k; begin += kSteps) {
    const int64_t count = k - begin < kSteps ? k - begin : kSteps;
    for (int64_t r = 0; r < rows; ++r, out += kSteps) {
      const float* in = x + r * x_stride + begin;
      for (int64_t i = 0; i < count; ++i) {
        if constexpr (kRound) {
          const uint32_t u = __builtin_bit_cast(uint32_t, in[i]);
          const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
          const uint32_t bits = (u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : rounded;
          out[i] = __builtin_bit_cast(float, bits & 0xffff0000u);
        } else {
          out[i] = in[i];
        }
      }
      for (int64_t i = count; i < kSteps; ++i) out[i] = 0;
    }
  }
}

}  // namespace
}  // namespace weir::matmul
