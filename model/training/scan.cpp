// Mamba's selective scan for training on a CPU: per batch row, channel d and state n
//     h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t,   y_t = sum_n C_t h_t.
// SCAN_STATE (n) is a compile-time constant so that the inner loops are a few vector instructions. The
// forward pass keeps the states at every SCAN_CHUNK tokens only; the backward pass computes those in between
// again. Compiled by scan.py.
#include <torch/extension.h>

#include <cmath>
#include <vector>

namespace {

constexpr int kChunk = SCAN_CHUNK;
constexpr int kState = SCAN_STATE;

struct Sizes {
  int64_t rows, length, channels, chunks;
  explicit Sizes(const torch::Tensor& x)
      : rows(x.size(0)), length(x.size(1)), channels(x.size(2)), chunks((length + kChunk - 1) / kChunk) {}
};

// One channel over tokens [begin, end), from h on; x, dt and y have a stride of `channels`.
inline void run(const float* x, const float* dt, const float* a, const float* b, const float* c, float* h,
                float* y, int64_t begin, int64_t end, int64_t channels) {
  for (int64_t t = begin; t < end; ++t) {
    const float step = dt[t * channels], input = step * x[t * channels];
    float sum = 0;
    for (int n = 0; n < kState; ++n) {
      h[n] = std::exp(step * a[n]) * h[n] + input * b[t * kState + n];
      sum += h[n] * c[t * kState + n];
    }
    y[t * channels] = sum;
  }
}

// Gradients of one channel over the `size` tokens of a chunk whose first state is `before`. `carried` is the
// gradient of the state after the chunk and becomes that of `before`; da, db and dc are added to. Nothing
// overlaps.
inline void PullBack(const float* __restrict dy, const float* __restrict x, const float* __restrict dt,
                     const float* __restrict a, const float* __restrict b, const float* __restrict c,
                     const float* __restrict before, float* __restrict carried, float* __restrict dx,
                     float* __restrict ddt, float* __restrict da, float* __restrict db, float* __restrict dc,
                     int64_t size, int64_t channels) {
  alignas(64) float h[kChunk + 1][kState], decay[kChunk][kState], g[kState], ga[kState] = {};
  std::copy_n(before, kState, h[0]);
  for (int64_t t = 0; t < size; ++t) {
    const float step = dt[t * channels], input = step * x[t * channels];
    for (int n = 0; n < kState; ++n) {
      decay[t][n] = std::exp(step * a[n]);
      h[t + 1][n] = decay[t][n] * h[t][n] + input * b[t * kState + n];
    }
  }
  std::copy_n(carried, kState, g);
  for (int64_t t = size - 1; t >= 0; --t) {
    const float step = dt[t * channels], input = x[t * channels], out = dy[t * channels];
    float along_b = 0, along_a = 0;
    for (int n = 0; n < kState; ++n) {
      const float here = g[n] + out * c[t * kState + n];
      dc[t * kState + n] += out * h[t + 1][n];
      db[t * kState + n] += here * (step * input);
      along_b += here * b[t * kState + n];
      g[n] = here * decay[t][n];
      const float faded = g[n] * h[t][n];
      along_a += faded * a[n];
      ga[n] += faded * step;
    }
    dx[t * channels] = along_b * step;
    ddt[t * channels] = along_b * input + along_a;
  }
  std::copy_n(g, kState, carried);
  for (int n = 0; n < kState; ++n) da[n] += ga[n];
}

}  // namespace

// x, dt [R, T, D]; a [D, N]; b, c [R, T, N]; start [R, D, N]: y [R, T, D] and states [R, chunks + 1, D, N],
// of which the last is the state after the last token.
std::vector<torch::Tensor> Forward(torch::Tensor x, torch::Tensor dt, torch::Tensor a, torch::Tensor b,
                                   torch::Tensor c, torch::Tensor start) {
  const Sizes s(x);
  auto y = torch::empty_like(x);
  auto states = torch::empty({s.rows, s.chunks + 1, s.channels, kState}, x.options());
  const int64_t plane = s.channels * kState;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t at = r * s.length * s.channels, at_bc = r * s.length * kState;
    float* state = states.data_ptr<float>() + r * (s.chunks + 1) * plane;
    std::copy_n(start.data_ptr<float>() + r * plane, plane, state);
    for (int64_t k = 0; k < s.chunks; ++k) {
      std::copy_n(state + k * plane, plane, state + (k + 1) * plane);
      for (int64_t d = 0; d < s.channels; ++d) {
        float h[kState];
        float* kept = state + (k + 1) * plane + d * kState;
        std::copy_n(kept, kState, h);
        run(x.data_ptr<float>() + at + d, dt.data_ptr<float>() + at + d, a.data_ptr<float>() + d * kState,
            b.data_ptr<float>() + at_bc, c.data_ptr<float>() + at_bc, h, y.data_ptr<float>() + at + d,
            k * kChunk, std::min(s.length, (k + 1) * kChunk), s.channels);
        std::copy_n(h, kState, kept);
      }
    }
  }
  return {y, states};
}

// Gradients of x, dt, a, b, c; nothing flows into the state before the first token.
std::vector<torch::Tensor> Backward(torch::Tensor dy, torch::Tensor x, torch::Tensor dt, torch::Tensor a,
                                    torch::Tensor b, torch::Tensor c, torch::Tensor states) {
  const Sizes s(x);
  auto dx = torch::empty_like(x), ddt = torch::empty_like(x), da = torch::zeros_like(a);
  auto db = torch::zeros_like(b), dc = torch::zeros_like(c);
  std::vector<float> carried(s.channels * kState);  // gradient of the state, from the later chunks
  for (int64_t r = 0; r < s.rows; ++r) {
    std::fill(carried.begin(), carried.end(), 0.0f);
    for (int64_t k = s.chunks - 1; k >= 0; --k) {
      const int64_t begin = k * kChunk, size = std::min<int64_t>(kChunk, s.length - begin);
      const int64_t at_bc = (r * s.length + begin) * kState;
      for (int64_t d = 0; d < s.channels; ++d) {
        const int64_t at = (r * s.length + begin) * s.channels + d;
        PullBack(dy.data_ptr<float>() + at, x.data_ptr<float>() + at, dt.data_ptr<float>() + at,
                 a.data_ptr<float>() + d * kState, b.data_ptr<float>() + at_bc, c.data_ptr<float>() + at_bc,
                 states.data_ptr<float>() + ((r * (s.chunks + 1) + k) * s.channels + d) * kState,
                 carried.data() + d * kState, dx.data_ptr<float>() + at, ddt.data_ptr<float>() + at,
                 da.data_ptr<float>() + d * kState, db.data_ptr<float>() + at_bc,
                 dc.data_ptr<float>() + at_bc, size, s.channels);
      }
    }
  }
  return {dx, ddt, da, db, dc};
}
