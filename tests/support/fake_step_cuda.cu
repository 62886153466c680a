// FakeModel on a GPU: a warp for each run, which goes through its tokens one by one.
#include "runtime/device/cuda_launch.cuh"
#include "tests/support/fake_model_hash.h"
#include "tests/support/fake_step_cuda.h"

namespace weir::testing {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLanes = 32;

// Number `dim` of the key at `position` of run n; a block holds [2, block_tokens].
__device__ float& KeyAt(const CudaFakeStep& s, int n, int64_t position, int dim) {
  const int32_t block = s.block_tables[n * s.max_blocks + position / s.block_tokens];
  return s.keys[block * s.keys_stride + dim * s.block_tokens + position % s.block_tokens];
}

// Writes the key of token `count`; true when one up to it is not what was written there.
__device__ bool WriteAndCheckKeys(const CudaFakeStep& s, int n, int64_t count, int32_t id, int lane) {
  if (lane == 0) {
    KeyAt(s, n, count, 0) = static_cast<float>(id);
    KeyAt(s, n, count, 1) = static_cast<float>(count);
  }
  __syncwarp(kAllLanes);
  bool wrong = false;
  for (int64_t p = lane; p <= count; p += kLanes) wrong = wrong || KeyAt(s, n, p, 1) != static_cast<float>(p);
  return __any_sync(kAllLanes, wrong) != 0;
}

__global__ void FakeStepKernel(CudaFakeStep s) {
  const int n = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  const int begin = s.cu_seqlens[n], end = s.cu_seqlens[n + 1];
  if (begin == end) return;
  float* words = s.words + s.slots[n] * s.words_stride;
  auto hash = static_cast<uint32_t>(words[0]);
  auto count = static_cast<int64_t>(words[1]);
  __syncwarp(kAllLanes);  // all have read before one writes
  bool bad = count != s.positions[n];
  for (int t = begin; t < end; ++t) {
    const int32_t id = s.token_ids[t];
    hash = FakeHash(hash, id);
    if (s.keys != nullptr && !bad) bad = WriteAndCheckKeys(s, n, count, id, lane);
    ++count;
    bad = bad || id == s.poison_id;
    const int32_t next = FakeNext(hash, count, s.vocab_size);
    for (int r = 0; r < s.num_logits; ++r) {
      if (s.logit_rows[r] != t) continue;
      float* row = s.logits + static_cast<int64_t>(r) * s.vocab_size;
      for (int i = lane; i < s.vocab_size; i += kLanes) row[i] = bad ? NAN : FakeLogit(i, next);
    }
  }
  if (lane == 0) {
    words[0] = static_cast<float>(hash);
    words[1] = static_cast<float>(count);
  }
}

}  // namespace

void LaunchCudaFakeStep(const CudaFakeStep& step, int num_seqs, cudaStream_t stream) {
  LaunchCuda(FakeStepKernel, dim3(static_cast<unsigned>(num_seqs)), dim3(kLanes), 0, stream, step);
}

}  // namespace weir::testing
