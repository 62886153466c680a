// Row kernels for any CPU: 16-byte vectors as the compiler offers them, multiply and add apart.
#include <cstring>

#include "runtime/ops/matmul/row_kernels_impl.h"

namespace weir::matmul {
namespace {

using Float4 = float __attribute__((vector_size(16)));
using Uint4 = uint32_t __attribute__((vector_size(16)));

struct GenericBase {
  using Vec = Float4;
  static constexpr int kLanes = 4;
  static constexpr int kWeightBytes = 4;
  static constexpr int kMaxRows = 2;
  static constexpr int Wide(int rows) { return rows == 1 ? 8 : 4; }
  static constexpr int Narrow(int) { return 4; }
  static Vec Zero() { return Vec{}; }
  static Vec Load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
  static Vec Add(Vec a, Vec b) { return a + b; }
  static Vec Mul(Vec a, Vec b) { return a * b; }
};

struct GenericF32 : GenericBase {
  using Weight = Vec;
  using X = Vec;
  static constexpr int kXStepBytes = 4;
  static Weight LoadWeight(const std::byte* p) { return Load(reinterpret_cast<const float*>(p)); }
  static X LoadX(const std::byte* p) {
    const float value = *reinterpret_cast<const float*>(p);
    return Vec{value, value, value, value};
  }
  static Vec MulAdd(Vec acc, Weight w, X x) { return acc + w * x; }
};

struct GenericBF16 : GenericBase {
  struct Weight {
    Vec even, odd;
  };
  struct X {
    Vec even, odd;
  };
  static constexpr int kXStepBytes = 8;
  static Weight LoadWeight(const std::byte* p) {
    Uint4 pair;
    std::memcpy(&pair, p, sizeof(pair));
    return {reinterpret_cast<Vec>(pair << 16), reinterpret_cast<Vec>(pair & 0xffff0000u)};
  }
  static X LoadX(const std::byte* p) {
    const float* pair = reinterpret_cast<const float*>(p);
    return {Vec{pair[0], pair[0], pair[0], pair[0]}, Vec{pair[1], pair[1], pair[1], pair[1]}};
  }
  static Vec MulAdd(Vec acc, const Weight& w, const X& x) { return acc + w.even * x.even + w.odd * x.odd; }
};

struct GenericInt8 : GenericBF16 {
  static constexpr int kWeightBytes = 2;
  static Weight LoadWeight(const std::byte* p) {
    using Int4 = int32_t __attribute__((vector_size(16)));
    int8_t q[8];
    std::memcpy(q, p, sizeof(q));
    return {__builtin_convertvector((Int4{q[0], q[2], q[4], q[6]}), Vec),
            __builtin_convertvector((Int4{q[1], q[3], q[5], q[7]}), Vec)};
  }
  static void StoreWide(std::byte* p, const Weight& w) {
    const Uint4 pair = reinterpret_cast<Uint4>(w.even) >> 16 | reinterpret_cast<Uint4>(w.odd);
    std::memcpy(p, &pair, sizeof(pair));
  }
};

constexpr RowsFunction kF32Rows[] = {Rows<GenericF32, 1>, Rows<GenericF32, 2>};
constexpr RowsFunction kBF16Rows[] = {Rows<GenericBF16, 1>, Rows<GenericBF16, 2>};
constexpr RowsFunction kInt8Rows[] = {Rows<GenericInt8, 1>, Rows<GenericInt8, 2>};

}  // namespace

constinit const IsaKernels kGenericKernels = {
    {GenericBase::kMaxRows, GenericF32::kXStepBytes, PackF32<kChunkSteps, false>, kF32Rows},
    {GenericBase::kMaxRows, GenericBF16::kXStepBytes, PackF32<2 * kChunkSteps, true>, kBF16Rows},
    kInt8Rows,
    kInt8Rows};

}  // namespace weir::matmul
