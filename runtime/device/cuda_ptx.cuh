// All inline PTX: tensor-core products, what feeds them, and asynchronous copies; sm_80 and later.
// The emulation of the tests has a twin of each function with the documented layouts of the PTX ISA.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

#if !defined(WEIR_CUDA_EMULATED)

// D += A B for a warp: mma.sync.m16n8k16, A bf16 [16, 16] by rows, B bf16 [16, 8] by columns, D f32 [16, 8].
// Lane l = 4 g + t holds of A the pairs at (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8); of B those at
// rows 2t and 2t + 8 of column g; of D (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of f16.
__device__ __forceinline__ void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Four 8x8 matrices of 16-bit values; lane 8 i + r gives the 16-byte aligned row r of matrix i in shared
// memory, and lane l = 4 g + t receives the pair at (g, 2t) of matrix i in r[i].
__device__ __forceinline__ void LdMatrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// The same of the transposed matrices: the pair at rows 2t and 2t + 1 of column g.
__device__ __forceinline__ void LdMatrix4Trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// (value & mask) | bits in one instruction, of which the compiler makes two where both are constants.
__device__ __forceinline__ uint32_t AndOr(uint32_t value, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(result) : "r"(value), "r"(mask), "r"(bits));
  return result;
}

// Copies 16 bytes from global to shared memory, both 16-byte aligned, or writes zeros where not `valid` (then
// `src` is not read, but must be an address). Done when CpAsyncWait says so.
__device__ __forceinline__ void CpAsync16(void* dst, const void* src, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(dst)), "l"(src),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CpAsyncCommit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most kPending of this thread's committed groups are under way.
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

#endif

}  // namespace weir
