// elu + 1 on NVIDIA GPUs: 8 bytes move for each element.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/feature_map/elu_plus_one_cuda.h"

namespace weir {
namespace {

struct EluPlusOneOperation {
  CudaEluPlusOne e;

  template <int kLanes>
  __device__ void Apply(int64_t row, int column) const {
    Pack<kLanes> x = LoadPack<kLanes>(e.x + row * e.x_stride + column);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float value = x.lane[i];
      x.lane[i] = value <= 0.0f ? expf(value) : __fadd_rn(value, 1.0f);  // NaN fails the comparison
    }
    StorePack(x, e.y + row * e.y_stride + column);
  }
};

}  // namespace

void LaunchCudaEluPlusOne(const CudaEluPlusOne& e, int64_t rows, int64_t columns, cudaStream_t stream) {
  LaunchRows(EluPlusOneOperation{e}, rows, columns, FitPacks({columns, e.x_stride, e.y_stride}, {e.x, e.y}),
             stream);
}

}  // namespace weir
