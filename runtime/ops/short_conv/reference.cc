#include <cmath>
#include <vector>

#include "runtime/ops/short_conv/short_conv.h"

namespace weir {

// Lays the window and the run of one channel end to end and slides over them.
void ShortConvReference(const ShortConvArgs& args, double* y, double* window) {
  const int64_t width = args.weight.dim(0);
  const int64_t channels = args.x.dim(1);
  for (int n = 0; n < args.batch.num_seqs; ++n) {
    const int64_t begin = args.batch.cu_seqlens.data<int32_t>()[n];
    const int64_t end = args.batch.cu_seqlens.data<int32_t>()[n + 1];
    const int64_t slot = args.batch.slots.data<int32_t>()[n];
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<double> inputs;
      for (int64_t w = 0; w < width - 1; ++w)
        inputs.push_back(window[(slot * (width - 1) + w) * channels + c]);
      for (int64_t t = begin; t < end; ++t) inputs.push_back(args.x.row<float>(t)[c]);
      for (int64_t t = begin; t < end; ++t) {
        double sum = args.bias.empty() ? 0.0 : args.bias.data<float>()[c];
        for (int64_t w = 0; w < width; ++w)
          sum += args.weight.row<float>(w)[c] * inputs[static_cast<size_t>(t - begin + w)];
        y[t * channels + c] = args.silu ? sum / (1.0 + std::exp(-sum)) : sum;
      }
      for (int64_t w = 0; w < width - 1; ++w)
        window[(slot * (width - 1) + w) * channels + c] = inputs[static_cast<size_t>(end - begin + w)];
    }
  }
}

}  // namespace weir
