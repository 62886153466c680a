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
  std::vector<double> k, v, weights;  // k, v: [positions][head_dim] of one KV head
  for (int run = 0; run < args.batch.num_seqs; ++run) {
    const int32_t* table = args.batch.block_tables.row<int32_t>(run);
    const int32_t begin = args.batch.cu_seqlens.data<int32_t>()[run];
    const int32_t end = args.batch.cu_seqlens.data<int32_t>()[run + 1];
    const int64_t first = args.batch.positions.data<int64_t>()[run];
    for (int64_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
      k.clear();
      v.clear();
      for (int64_t j = 0; j < first + end - begin; ++j) {
        const int64_t block = table[j / kKvBlockTokens];
        const int64_t in_block = j % kKvBlockTokens;
        for (int64_t i = 0; i < head_dim; ++i) {
          k.push_back(ElementAt(keys, block, (kv_head * head_dim + i) * kKvBlockTokens + in_block));
          v.push_back(ElementAt(values, block, (kv_head * kKvBlockTokens + in_block) * head_dim + i));
        }
      }
      for (int64_t token = begin; token < end; ++token) {
        const int64_t visible = first + token - begin + 1;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const float* q = args.q.row<float>(token) + head * head_dim;
          double* out = o + (token * args.num_heads + head) * head_dim;
          weights.assign(static_cast<size_t>(visible), 0.0);
          for (int64_t j = 0; j < visible; ++j) {
            const double* key = k.data() + j * head_dim;
            double score = 0.0;
            for (int64_t i = 0; i < head_dim; ++i) score += q[i] * key[i];
            weights[static_cast<size_t>(j)] = score * args.scale;
          }
          const double max = *std::max_element(weights.begin(), weights.end());
          double sum = 0.0;
          for (double& weight : weights) sum += weight = std::exp(weight - max);
          std::fill_n(out, head_dim, 0.0);
          for (int64_t j = 0; j < visible; ++j) {
            const double weight = weights[static_cast<size_t>(j)] / sum;
            for (int64_t i = 0; i < head_dim; ++i)
              out[i] += weight * v[static_cast<size_t>(j * head_dim + i)];
          }
        }
      }
    }
  }
}

}  // namespace weir
