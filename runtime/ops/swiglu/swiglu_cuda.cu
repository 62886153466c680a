// SwiGLU on NVIDIA GPUs: 12 bytes move for each element.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/swiglu/swiglu_cuda.h"

namespace weir {
namespace {

struct SwiGluOperation {
  CudaSwiGlu s;

  template <int kLanes>
  __device__ void Apply(int64_t row, int column) const {
    Pack<kLanes> y = LoadPack<kLanes>(s.gate + row * s.gate_stride + column);
    const Pack<kLanes> up = LoadPack<kLanes>(s.up + row * s.up_stride + column);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) y.lane[i] = __fmul_rn(Silu(y.lane[i]), up.lane[i]);
    StorePack(y, s.y + row * s.y_stride + column);
  }
};

}  // namespace

void LaunchCudaSwiGlu(const CudaSwiGlu& s, int64_t rows, int64_t columns, cudaStream_t stream) {
  const bool fit = FitPacks({columns, s.gate_stride, s.up_stride, s.y_stride}, {s.gate, s.up, s.y});
  LaunchRows(SwiGluOperation{s}, rows, columns, fit, stream);
}

}  // namespace weir
