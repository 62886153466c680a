// What the CUDA kernels of matmul are given: plain pointers to device memory, so that the .cu files need
// neither Abseil nor the op's own header.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// y = x Wᵀ (+ bias) (+ y). Strides are elements between two rows.
struct CudaMatmul {
  const float* x = nullptr;          // [m, k]
  const unsigned char* w = nullptr;  // [n, w_row_bytes]: rows of f32, bf16 or int8, zero from k on
  const float* bias = nullptr;       // [n] or null
  float* y = nullptr;                // [m, n]
  int64_t x_stride = 0, y_stride = 0;
  int64_t m = 0, n = 0, k = 0;
  int64_t w_row_bytes = 0;  // a multiple of 16; w is aligned to 16 bytes
  // Memory for scratch_rows rows of x in bf16, each of x_row_bytes, aligned to 16 bytes. Used by the tiled
  // forms of bf16 and int8 weights, which take more rows piece by piece.
  unsigned char* scratch = nullptr;
  int64_t scratch_rows = 0;
  bool accumulate = false;
  bool x_vector = false;          // rows of x are aligned to 16 bytes; set by the launch functions
  int64_t x_row_bytes = 0;        // of a row of scratch: 2 k padded to a multiple of 16, as those of bf16
  const float* scales = nullptr;  // [n], of int8 weights
};

// Every form gives an output the same sequence of operations, so that the choice shows in the time alone.
enum class CudaMatmulForm : uint8_t {
  kStream,  // few rows of x: a block streams few rows of W, its warps share out k
  kTile64,  // 64 x 64 outputs a block
  kTile128,
};

// Where value k of an int8 row lies in w. Of 16 values those of either half take turns, so that four bytes
// are what one lane multiplies by in one mma.sync.
__host__ __device__ __forceinline__ constexpr int64_t Int8Place(int64_t k) {
  return k / 16 * 16 + k % 8 * 2 + k / 8 % 2;
}

// What is fastest for these sizes.
CudaMatmulForm ChooseCudaMatmulForm(int64_t m, int64_t n);

// x is rounded to bf16, sums are f32. m, n and k are at least 1.
void LaunchCudaMatmulBf16(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream);
// The same, and each sum is multiplied by its column's scale before all else.
void LaunchCudaMatmulInt8(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream);
// f32 throughout. kTile128 is kTile64 here.
void LaunchCudaMatmulF32(CudaMatmul matmul, CudaMatmulForm form, cudaStream_t stream);

// Only what comes before a product by another library: x to the scratch memory, m of at most scratch_rows.
void LaunchCudaRoundRows(CudaMatmul matmul, cudaStream_t stream);
// And what comes after it: y = product (+ bias) (+ y), each sum rounded in this order. `product` [m, n] may
// be y itself.
void LaunchCudaFinishRows(const CudaMatmul& matmul, const float* product, int64_t product_stride,
                          cudaStream_t stream);

// y[t] = scales[row] * w[row], row = index[t].
struct CudaGatherInt8 {
  const unsigned char* w = nullptr;  // [rows, w_row_bytes], as above
  const float* scales = nullptr;     // [rows]
  const int32_t* index = nullptr;    // [num_tokens]
  float* y = nullptr;                // [num_tokens, width]
  int64_t w_row_bytes = 0, y_stride = 0;
  int64_t num_tokens = 0, width = 0;
};
void LaunchCudaGatherInt8(const CudaGatherInt8& gather, cudaStream_t stream);

}  // namespace weir
