// Stores keys and values in the paged pool, rounded to its type: the one place where they lose bits.
#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/attention/kv_write_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RoundRow(const float* in, float* out, int64_t count) {
  std::memcpy(out, in, sizeof(float) * static_cast<size_t>(count));
}

// Same bits as BF16::FromFloat.
void RoundRow(const float* in, BF16* out, int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, in + i);
    const auto u = hn::BitCast(du, v);
    const auto upper = hn::ShiftRight<16>(u);
    const auto odd = hn::And(upper, hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fff))));
    const auto nan = hn::Or(upper, hn::Set(du, 0x40));
    const auto bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16, reinterpret_cast<uint16_t*>(out + i));
  }
  for (; i < count; ++i) out[i] = BF16::FromFloat(in[i]);
}

void RoundRow(const float* in, F16* out, int64_t count) {
  int64_t i = 0;
#if HWY_TARGET < HWY_SSE4
  // Highway's emulation for machines without F16C truncates.
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, in + i)), d16, reinterpret_cast<hwy::float16_t*>(out + i));
#endif
  for (; i < count; ++i) out[i] = F16::FromFloat(in[i]);
}

// One head of one position. keys: [head_dim][kKvBlockTokens] from the position's own column; values: its row.
template <class T>
void WritePosition(const float* k, const float* v, int64_t head_dim, T* keys, T* values) {
  constexpr int64_t kStep = 64;
  T rounded[kStep];
  for (int64_t begin = 0; begin < head_dim; begin += kStep) {
    const int64_t count = std::min(kStep, head_dim - begin);
    RoundRow(k + begin, rounded, count);
    for (int64_t i = 0; i < count; ++i) keys[(begin + i) * kKvBlockTokens] = rounded[i];
  }
  RoundRow(v, values, head_dim);
}

template <class T>
void WriteTokensOf(const KvWriteArgs& args, int64_t begin, int64_t end, int64_t head) {
  const int32_t* cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  const int64_t head_dim = args.kv.keys.dim(2);
  int64_t run = std::upper_bound(cu_seqlens, cu_seqlens + args.batch.num_seqs + 1, begin) - cu_seqlens - 1;
  for (int64_t token = begin; token < end; ++token) {
    while (token >= cu_seqlens[run + 1]) ++run;
    const int64_t position = args.batch.positions.data<int64_t>()[run] + token - cu_seqlens[run];
    const int64_t block = args.batch.block_tables.row<int32_t>(run)[position / kKvBlockTokens];
    const int64_t in_block = position % kKvBlockTokens;
    const int64_t head_offset = head * head_dim * kKvBlockTokens;
    WritePosition(args.k.row<float>(token) + head * head_dim, args.v.row<float>(token) + head * head_dim,
                  head_dim, args.kv.keys.row<T>(block) + head_offset + in_block,
                  args.kv.values.row<T>(block) + head_offset + in_block * head_dim);
  }
}

void WriteTokens(const KvWriteArgs& args, int64_t begin, int64_t end, int64_t head) {
  const DType dtype = args.kv.keys.dtype();
  if (dtype == DType::kBF16) return WriteTokensOf<BF16>(args, begin, end, head);
  if (dtype == DType::kF16) return WriteTokensOf<F16>(args, begin, end, head);
  WriteTokensOf<float>(args, begin, end, head);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(WriteTokens);

void KvWriteCpu(const KvWriteArgs& args, Stream& stream) {
  // Tokens per task, and elements below which waking the workers costs more than it saves.
  constexpr int64_t kTokens = 64;
  constexpr int64_t kInlineElements = 8192;
  const int64_t num_tokens = args.batch.num_tokens;
  const int64_t heads = args.kv.keys.dim(1);
  WEIR_CHECK(args.kv.keys.dtype() == args.kv.values.dtype());
  WEIR_CHECK(args.kv.keys.dim(3) == kKvBlockTokens && args.kv.values.dim(2) == kKvBlockTokens);
  WEIR_CHECK(args.k.row_size() == heads * args.kv.keys.dim(2) && args.v.row_size() == args.k.row_size());
  const auto write = HWY_DYNAMIC_DISPATCH(WriteTokens);
  if (num_tokens * args.k.row_size() <= kInlineElements) {
    for (int64_t head = 0; head < heads; ++head) write(args, 0, num_tokens, head);
    return;
  }
  const int64_t chunks = (num_tokens + kTokens - 1) / kTokens;
  PoolOf(stream).ParallelFor(chunks * heads, [&](int64_t task, int /*thread*/) {
    const int64_t begin = task / heads * kTokens;
    write(args, begin, std::min(begin + kTokens, num_tokens), task % heads);
  });
}

}  // namespace weir
#endif  // HWY_ONCE
