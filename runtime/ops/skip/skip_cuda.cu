// The skip connection on NVIDIA GPUs: 12 bytes move for each element.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/skip/skip_cuda.h"

namespace weir {
namespace {

struct SkipOperation {
  CudaSkip s;

  template <int kLanes>
  __device__ void Apply(int64_t row, int column) const {
    const Pack<kLanes> x = LoadPack<kLanes>(s.x + row * s.x_stride + column);
    float* const at = s.y + row * s.y_stride + column;
    Pack<kLanes> y = LoadPack<kLanes>(at);
    const float d = s.d[column / s.head_dim];  // a pack lies in one head
#pragma unroll
    for (int i = 0; i < kLanes; ++i) y.lane[i] = __fmaf_rn(d, x.lane[i], y.lane[i]);
    StorePack(y, at);
  }
};

}  // namespace

void LaunchCudaSkip(const CudaSkip& s, int64_t rows, int64_t columns, cudaStream_t stream) {
  LaunchRows(SkipOperation{s}, rows, columns, FitPacks({s.head_dim, s.x_stride, s.y_stride}, {s.x, s.y}),
             stream);
}

}  // namespace weir
