// That what the recurrence says of its shared memory is what its kernels ask for: a shape that a GPU has room
// for runs there, and one that it has not is known before.
#include <gtest/gtest.h>

#include "runtime/ops/linear_recurrence/cuda_shared_bytes.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

struct Shape {
  int state_dim, head_dim, queries;
  int64_t needed;  // bytes
};

// Whether a run of two tokens is computed.
bool Runs(const Shape& shape, Device& device) {
  const Ragged ragged({{2, 0, 0}});
  const auto zeros = [](Guarded& tensor) -> TensorView {
    tensor.Fill(0);
    return tensor;
  };
  Guarded q(DType::kF32, {2, shape.queries * shape.state_dim}), k(DType::kF32, {2, shape.state_dim});
  Guarded v(DType::kF32, {2, shape.head_dim}), o(DType::kF32, {2, shape.queries * shape.head_dim});
  Guarded s_inner(DType::kF32, {1, 1, shape.state_dim, shape.head_dim});
  Guarded s_outer(DType::kF32, {1, 1, shape.state_dim, shape.head_dim});
  Guarded z_inner(DType::kF32, {1, 1, shape.state_dim}), z_outer(DType::kF32, {1, 1, shape.state_dim});
  LinearRecurrenceArgs args;
  args.batch = ragged.batch();
  args.q = zeros(q), args.k = zeros(k), args.v = zeros(v), args.o = zeros(o);
  args.s_inner = zeros(s_inner), args.s_outer = zeros(s_outer);
  args.z_inner = zeros(z_inner), args.z_outer = zeros(z_outer);
  args.num_heads = shape.queries;
  args.num_kv_heads = 1;
  args.scale = 1.0f;
  args.eps = 1.0f;
  DeviceMirror mirror(device);
  LinearRecurrenceArgs twins = args;
  VisitViews(twins, [&](const TensorView& view) { mirror.Add(view); });
  mirror.Upload();
  VisitViews(twins, [&](TensorView& view) { view = mirror.Twin(view); });
  Launch(kLinearRecurrence, twins, device.stream());
  return device.stream().Synchronize().ok();
}

TEST(RecurrenceLimit, SaysWhatTheKernelsNeedAndTheGpuHas) {
  // At 120 a block has 99 KiB, at 80 163.
  const Shape small = {2048, 8, 2, 82'024}, large = {2048, 8, 3, 102'508}, one_state = {64, 64, 40, 104'384};
  for (const int capability : {120, 80}) {
    emulator::Options().compute_capability = capability;
    const auto device = CreateTestDevice(1);
    for (const Shape& shape : {small, large, one_state}) {
      const CudaSharedBytes bytes =
          RecurrenceSharedBytes(shape.state_dim, shape.head_dim, shape.queries, *device);
      EXPECT_EQ(bytes.available, (capability == 120 ? 99 : 163) << 10);
      EXPECT_EQ(bytes.needed, shape.needed);
      EXPECT_EQ(Runs(shape, *device), bytes.needed <= bytes.available)
          << shape.state_dim << " x " << shape.head_dim << ", " << shape.queries << " queries, "
          << capability;
    }
  }
  emulator::ResetOptions();
}

}  // namespace
}  // namespace weir
