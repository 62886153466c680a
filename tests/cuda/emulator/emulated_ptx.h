// The emulated twins of runtime/device/cuda_ptx.cuh. Lanes hold what the PTX manual's figures say that they
// hold, so a kernel's index arithmetic is truly tested.
#pragma once

#include <cstdint>
#include <cstring>

#include "tests/cuda/emulator/device_builtins.h"

namespace weir {
namespace emulator {

struct MmaLane {
  float* d;           // 16 x 8: rows group and group + 8, two neighbouring columns each
  const uint32_t* a;  // 16 x 16, row-major
  const uint32_t* b;  // 16 x 8, column-major
};

inline float Bf16Half(uint32_t pair, int half) {
  return __uint_as_float(half != 0 ? pair & 0xffff0000u : pair << 16);
}

inline float F16Half(uint32_t pair, int half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(half != 0 ? pair >> 16 : pair)));
}

template <float (*kHalf)(uint32_t, int)>
void MultiplyTiles(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) FailPartialWarp("mma.sync", mask);
  float a[16][16], b[16][8], d[16][8];
  const auto each_d = [&](auto visit) {
    for (int lane = 0; lane < warpSize; ++lane)
      for (int i = 0; i < 4; ++i)
        visit(d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2], static_cast<MmaLane*>(lanes[lane])->d[i]);
  };
  each_d([](float& tile, float& mine) { tile = mine; });
  for (int lane = 0; lane < warpSize; ++lane) {
    const auto* const m = static_cast<MmaLane*>(lanes[lane]);
    const int group = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 8; ++i)
      a[group + i / 2 % 2 * 8][column + i % 2 + i / 4 * 8] = kHalf(m->a[i / 2], i % 2);
    for (int i = 0; i < 4; ++i) b[column + i % 2 + i / 2 * 8][group] = kHalf(m->b[i / 2], i % 2);
  }
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < 16; ++k) d[row][column] += a[row][k] * b[k][column];
  each_d([](float& tile, float& mine) { mine = tile; });
}

struct MatrixLane {
  uint32_t* r;
  const void* row;  // of matrix lane / 8
};

template <bool kTransposed>
void LoadMatrices(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) FailPartialWarp("ldmatrix", mask);
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int lane = 0; lane < warpSize; ++lane) {
      uint32_t pair = 0;
      for (int i = 0; i < 2; ++i) {
        const int row = kTransposed ? lane % 4 * 2 + i : lane / 4;
        const int column = kTransposed ? lane / 4 : lane % 4 * 2 + i;
        const auto* const from = static_cast<MatrixLane*>(lanes[matrix * 8 + row])->row;
        uint16_t element = 0;
        std::memcpy(&element, static_cast<const char*>(from) + column * 2, sizeof(element));
        pair |= static_cast<uint32_t>(element) << (16 * i);
      }
      static_cast<MatrixLane*>(lanes[lane])->r[matrix] = pair;
    }
  }
}

template <bool kTransposed>
void LoadMatrix(uint32_t* r, const void* row, Site site) {
  CheckMatrixRow(row, site);
  MatrixLane lane{r, row};
  WarpRendezvous(0xffffffffu, &lane, &LoadMatrices<kTransposed>, false, site);
}

}  // namespace emulator

// d += a b. mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                    emulator::Site site = emulator::Site::current()) {
  emulator::MmaLane lane{d, a, b};
  emulator::WarpRendezvous(0xffffffffu, &lane, &emulator::MultiplyTiles<emulator::Bf16Half>, false, site);
}

// The same of f16: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
inline void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   emulator::Site site = emulator::Site::current()) {
  emulator::MmaLane lane{d, a, b};
  emulator::WarpRendezvous(0xffffffffu, &lane, &emulator::MultiplyTiles<emulator::F16Half>, false, site);
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16: lane i names row i % 8 of matrix i / 8.
inline void LdMatrix4(uint32_t (&r)[4], const void* row, emulator::Site site = emulator::Site::current()) {
  emulator::LoadMatrix<false>(r, row, site);
}
inline void LdMatrix4Trans(uint32_t (&r)[4], const void* row,
                           emulator::Site site = emulator::Site::current()) {
  emulator::LoadMatrix<true>(r, row, site);
}

// lop3.b32 with the table of (a & b) | c.
__forceinline__ uint32_t AndOr(uint32_t value, uint32_t mask, uint32_t bits) { return (value & mask) | bits; }

// cp.async.cg.shared.global of 16 bytes; zeros when not valid.
__forceinline__ void CpAsync16(void* dst, const void* src, bool valid = true) {
  emulator::AsyncCopy16(dst, src, valid);
}
__forceinline__ void CpAsyncCommit() { emulator::AsyncCommit(); }
template <int kPending>
__forceinline__ void CpAsyncWait() {
  emulator::AsyncWait(kPending);
}

}  // namespace weir
