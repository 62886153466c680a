#include <algorithm>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/linear_recurrence/linear_recurrence_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/linear_recurrence/chunk-inl.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "runtime/ops/linear_recurrence/step-inl.h"
#include "runtime/ops/parallel.h"

#if HWY_ONCE
namespace weir {
namespace {

HWY_EXPORT(StepTokens);
HWY_EXPORT(ChunkTokens);
HWY_EXPORT(FoldHead);

// No target steps more tokens at once.
constexpr int64_t kMaxStepTokens = 4;

// Each worker's own; grows to the largest model's need and stays.
float* Scratch(int64_t elements) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < static_cast<size_t>(elements)) scratch.resize(static_cast<size_t>(elements));
  return scratch.data();
}

RecurrenceHead HeadOf(const LinearRecurrenceArgs& args, int64_t n, int64_t g) {
  RecurrenceHead head;
  const int64_t first = args.batch.cu_seqlens.data<int32_t>()[n];
  const int64_t slot = args.batch.slots.data<int32_t>()[n];
  head.queries = args.num_heads / args.num_kv_heads;
  head.state_dim = args.s_inner.dim(2);
  head.head_dim = args.s_inner.dim(3);
  const int64_t k_head = args.num_k_heads == 0 ? g : g / (args.num_kv_heads / args.num_k_heads);
  head.q = args.q.row<float>(first) + k_head * head.queries * head.state_dim;
  head.k = args.k.row<float>(first) + k_head * head.state_dim;
  head.v = args.v.row<float>(first) + g * head.head_dim;
  head.o = args.o.row<float>(first) + g * head.queries * head.head_dim;
  head.q_stride = args.q.row_stride();
  head.k_stride = args.k.row_stride();
  head.v_stride = args.v.row_stride();
  head.o_stride = args.o.row_stride();
  const auto part = [&](const TensorView& state, int64_t elements) {
    return state.empty() ? nullptr : state.row<float>(slot) + g * elements;
  };
  head.s_outer = part(args.s_outer, head.state_dim * head.head_dim);
  head.s_inner = part(args.s_inner, head.state_dim * head.head_dim);
  head.z_outer = part(args.z_outer, head.state_dim);
  head.z_inner = part(args.z_inner, head.state_dim);
  if (!args.log_decay.empty()) {
    const bool constant = args.log_decay.num_rows() == 1;
    head.log_decay = args.log_decay.row<float>(constant ? 0 : first) + g;
    head.decay_stride = constant ? 0 : args.log_decay.row_stride();
  }
  head.scale = args.scale;
  head.eps = args.eps;
  return head;
}

void RunHead(const RecurrenceHead& head, int64_t position, int64_t tokens, WholeChunks whole_chunks) {
  const auto step = HWY_DYNAMIC_DISPATCH(StepTokens);
  const auto chunk = HWY_DYNAMIC_DISPATCH(ChunkTokens);
  const auto fold = HWY_DYNAMIC_DISPATCH(FoldHead);
  for (int64_t t = 0; t < tokens;) {
    const int64_t p = position + t;
    if (head.s_outer != nullptr && p > 0 && p % kFoldTokens == 0) fold(head);
    // Folds lie on chunk borders, so none is due before the next border.
    const int64_t count = std::min(tokens - t, kChunkTokens - p % kChunkTokens);
    if (whole_chunks == WholeChunks::kProducts && count == kChunkTokens)
      chunk(head, t, Scratch(ChunkScratchElements(head.state_dim, head.head_dim)));
    else
      step(head, t, count, Scratch(kMaxStepTokens * head.queries));
    t += count;
  }
}

}  // namespace

static_assert(kFoldTokens % kChunkTokens == 0);

void LinearRecurrenceCpuWith(const LinearRecurrenceArgs& args, WholeChunks whole_chunks, Stream& stream) {
  WEIR_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  WEIR_CHECK(args.num_k_heads == 0 || args.num_kv_heads % args.num_k_heads == 0);
  WEIR_CHECK(args.z_inner.empty() || args.s_outer.empty() == args.z_outer.empty());
  const int32_t* cu = args.batch.cu_seqlens.data<int32_t>();
  const int64_t* positions = args.batch.positions.data<int64_t>();
  const int64_t heads = args.num_kv_heads;
  // A head of 64x64 steps one token in about 0.4 µs.
  const int64_t cost = static_cast<int64_t>(std::max(1, args.batch.max_seq_tokens)) * args.s_inner.dim(2) *
                       args.s_inner.dim(3) * (1 + args.num_heads / heads) / 2;
  ParallelRows(PoolOf(stream), args.batch.num_seqs * heads, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / heads;
      RunHead(HeadOf(args, n, i % heads), positions[n], cu[n + 1] - cu[n], whole_chunks);
    }
  });
}

void LinearRecurrenceCpu(const LinearRecurrenceArgs& args, Stream& stream) {
  LinearRecurrenceCpuWith(args, kCpuWholeChunks, stream);
}

}  // namespace weir
#endif  // HWY_ONCE
