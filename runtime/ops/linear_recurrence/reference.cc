#include "runtime/ops/linear_recurrence/linear_recurrence.h"

#include <cmath>

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
        const int64_t k_head = args.num_k_heads == 0 ? g : g / (args.num_kv_heads / args.num_k_heads);
        const float* k = args.k.row<float>(t) + k_head * state_dim;
        const float* v = args.v.row<float>(t) + g * head_dim;
        double* state = s + (slot * args.num_kv_heads + g) * state_dim * head_dim;
        double* sum = normalised ? z + (slot * args.num_kv_heads + g) * state_dim : nullptr;
        double decay = 1.0;
        if (!args.log_decay.empty())
          decay = std::exp(
              static_cast<double>(args.log_decay.row<float>(args.log_decay.num_rows() == 1 ? 0 : t)[g]));
        for (int64_t i = 0; i < state_dim; ++i) {
          if (normalised) sum[i] = decay * sum[i] + k[i];
          for (int64_t j = 0; j < head_dim; ++j) {
            double& s_ij = state[i * head_dim + j];
            s_ij = decay * s_ij + static_cast<double>(k[i]) * v[j];
          }
        }
        for (int64_t h = g * queries_per_state; h < (g + 1) * queries_per_state; ++h) {
          const int64_t query = k_head * queries_per_state + h - g * queries_per_state;
          const float* q = args.q.row<float>(t) + query * state_dim;
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
