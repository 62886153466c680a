// Mamba-2's inputs on NVIDIA GPUs: 8 bytes move for each element of x, 8 more for each head. Every pack of a
// head works out the head's Δ by itself; the first one writes log a.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/discretize/discretize_cuda.h"

namespace weir {
namespace {

struct DiscretizeOperation {
  CudaDiscretize d;

  template <int kLanes>
  __device__ void Apply(int64_t row, int column) const {
    const int head = column / d.head_dim;  // a pack lies in one head
    const float value = Softplus(__fadd_rn(d.dt[row * d.dt_stride + head], d.bias[head]));
    // Comparisons that a NaN fails, so that it stays.
    const float delta = value < d.min_dt ? d.min_dt : value > d.max_dt ? d.max_dt : value;
    if (column == head * d.head_dim)
      d.log_decay[row * d.log_decay_stride + head] = __fmul_rn(delta, d.a[head]);
    Pack<kLanes> x = LoadPack<kLanes>(d.x + row * d.x_stride + column);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x.lane[i] = __fmul_rn(x.lane[i], delta);
    StorePack(x, d.v + row * d.v_stride + column);
  }
};

}  // namespace

void LaunchCudaDiscretize(const CudaDiscretize& d, int64_t rows, int64_t columns, cudaStream_t stream) {
  LaunchRows(DiscretizeOperation{d}, rows, columns,
             FitPacks({d.head_dim, d.x_stride, d.v_stride}, {d.x, d.v}), stream);
}

}  // namespace weir
