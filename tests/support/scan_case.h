// Random input of a selective scan between red zones, as trained models have it: decays from slow to fast,
// steps around 0.01 to 1.
#pragma once

#include <cmath>
#include <vector>

#include "runtime/ops/selective_scan/selective_scan.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"

namespace weir {

struct ScanCase {
  ScanCase(int channels, int state_dim, int tokens, int slots, uint64_t seed)
      : u(DType::kF32, {tokens, channels}, 3),
        dt(DType::kF32, {tokens, channels}, 1),
        z(DType::kF32, {tokens, channels}, 5),
        y(DType::kF32, {tokens, channels}, 2),
        b(DType::kF32, {tokens, state_dim}, 4),
        c(DType::kF32, {tokens, state_dim}, 7),
        a(DType::kF32, {state_dim, channels}),
        d(DType::kF32, {channels}),
        dt_bias(DType::kF32, {channels}),
        state(DType::kF32, {slots, state_dim, channels}) {
    Random random(seed);
    random.FillNormal(d);
    random.FillUniform(dt_bias, -4.0, 0.5);
    for (int n = 0; n < state_dim; ++n)
      for (int i = 0; i < channels; ++i)
        a.row<float>(n)[i] = static_cast<float>(-(1 + n % 16) * std::exp(random.Uniform(-1.0, 1.0)));
    random.FillNormal(state);
    FillTokens(0, tokens, seed + 1);
  }

  void FillTokens(int first, int count, uint64_t seed) {
    Random random(seed);
    for (const Guarded* tensor : {&u, &dt, &z, &b, &c}) random.FillNormal(tensor->view().Rows(first, count));
  }

  // The tokens of `ragged` begin at row `first`.
  SelectiveScanArgs Args(const Ragged& ragged, int first = 0) const {
    const auto rows = [&](const Guarded& tensor) { return tensor.view().Rows(first, ragged.num_tokens()); };
    return {ragged.batch(), rows(u), rows(dt), dt_bias, a, rows(b), rows(c), d, rows(z), state, rows(y)};
  }
  std::vector<double> SizedLikeY() const {
    return std::vector<double>(static_cast<size_t>(y.view().num_elements()));
  }
  bool RedZonesIntact() const {
    for (const Guarded* tensor : {&u, &dt, &z, &y, &b, &c, &a, &d, &dt_bias, &state})
      if (!tensor->RedZonesIntact()) return false;
    return true;
  }

  Guarded u, dt, z, y, b, c, a, d, dt_bias, state;
};

}  // namespace weir
