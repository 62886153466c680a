#include "runtime/ops/linear_recurrence/linear_recurrence.h"

namespace weir {

void LinearRecurrenceReference(const LinearRecurrenceArgs& args, double* s, double* z, double* o) {
  const int64_t state_dim = args.s_inner.dim(2);
  const int64_t head_dim = args.s_inner.dim(3);
  const int64_t queries_per_state = args.num_heads / args.num_kv_heads;
  const bool normalised = !args.z_inner.empty();
  for (int n = 0; n < args.batch.num_seqs; ++n) {
    const int32_t slot = args.batch.slots.data<int32_t>()[n];
    for (int32_t t = args.batch.cu_seqlens.data<int32_t>()[n];
         t < args.batch.cu_seqlens.data<int32_t>()[n + 1]; ++t) {
      for (int64_t g = 0; g < args.num_kv_heads; ++g) {
        const float* k = args.k.row<float>(t) + g * state_dim;
        const float* v = args.v.row<float>(t) + g * head_dim;
        double* state = s + (slot * args.num_kv_heads + g) * state_dim * head_dim;
        double* sum = normalised ? z + (slot * args.num_kv_heads + g) * state_dim : nullptr;
        for (int64_t i = 0; i < state_dim; ++i) {
          if (normalised) sum[i] += k[i];
          for (int64_t j = 0; j < head_dim; ++j) state[i * head_dim + j] += static_cast<double>(k[i]) * v[j];
        }
        for (int64_t h = g * queries_per_state; h < (g + 1) * queries_per_state; ++h) {
          const float* q = args.q.row<float>(t) + h * state_dim;
          double norm = static_cast<double>(args.eps);
          for (int64_t i = 0; normalised && i < state_dim; ++i) norm += q[i] * sum[i];
          for (int64_t j = 0; j < head_dim; ++j) {
            double dot = 0.0;
            for (int64_t i = 0; i < state_dim; ++i) dot += q[i] * state[i * head_dim + j];
            o[t * args.num_heads * head_dim + h * head_dim + j] = normalised ? dot / norm : dot * args.scale;
          }
        }
      }
    }
  }
}

}  // namespace weir
