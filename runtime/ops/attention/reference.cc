// Attention as its formula says: all scores of a row, their maximum, their softmax, in double precision.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/ops/attention/attention.h"

namespace weir {
namespace {

double ElementAt(const TensorView& view, int64_t block, int64_t offset) {
  switch (view.dtype()) {
    case DType::kF32:
      return view.row<float>(block)[offset];
    case DType::kF16:
      return view.row<F16>(block)[offset].ToFloat();
    case DType::kBF16:
      return view.row<BF16>(block)[offset].ToFloat();
    default:
      WEIR_CHECK(false);
  }
}

}  // namespace

void AttentionReference(const AttentionArgs& args, double* o) {
  const TensorView& keys = args.kv.keys;
  const TensorView& values = args.kv.values;
  const int64_t num_kv_heads = keys.dim(1);
  const int64_t head_dim = keys.dim(2);
  const int64_t group = args.num_heads / num_kv_heads;
  std::vector<double> weights;
  for (int run = 0; run < args.batch.num_seqs; ++run) {
    const int32_t* table = args.batch.block_tables.row<int32_t>(run);
    const int32_t begin = args.batch.cu_seqlens.data<int32_t>()[run];
    const int32_t end = args.batch.cu_seqlens.data<int32_t>()[run + 1];
    for (int64_t token = begin; token < end; ++token) {
      const int64_t position = args.batch.positions.data<int64_t>()[run] + token - begin;
      for (int64_t head = 0; head < args.num_heads; ++head) {
        const int64_t kv_head = head / group;
        const float* q = args.q.row<float>(token) + head * head_dim;
        double* out = o + (token * args.num_heads + head) * head_dim;
        weights.assign(static_cast<size_t>(position + 1), 0.0);
        for (int64_t j = 0; j <= position; ++j) {
          double& score = weights[static_cast<size_t>(j)];
          for (int64_t i = 0; i < head_dim; ++i) {
            const int64_t at = (kv_head * head_dim + i) * kKvBlockTokens + j % kKvBlockTokens;
            score += static_cast<double>(q[i]) * ElementAt(keys, table[j / kKvBlockTokens], at);
          }
          score *= args.scale;
        }
        const double max = *std::max_element(weights.begin(), weights.end());
        double sum = 0.0;
        for (double& weight : weights) sum += weight = std::exp(weight - max);
        std::fill_n(out, head_dim, 0.0);
        for (int64_t j = 0; j <= position; ++j) {
          for (int64_t i = 0; i < head_dim; ++i) {
            const int64_t at = (kv_head * kKvBlockTokens + j % kKvBlockTokens) * head_dim + i;
            out[i] +=
                weights[static_cast<size_t>(j)] / sum * ElementAt(values, table[j / kKvBlockTokens], at);
          }
        }
      }
    }
  }
}

}  // namespace weir
