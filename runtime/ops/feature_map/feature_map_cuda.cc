// From views to pointers: the host half of the CUDA column.
#include <cmath>

#include "runtime/ops/feature_map/elu_plus_one_cuda.h"
#include "runtime/ops/feature_map/favor_cuda.h"
#include "runtime/ops/feature_map/feature_map.h"

namespace weir {

void EluPlusOneCuda(const EluPlusOneArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  const CudaEluPlusOne e{args.x.data<float>(), args.y.data<float>(), args.x.row_stride(),
                         args.y.row_stride()};
  LaunchCudaEluPlusOne(e, args.x.num_rows(), args.x.row_size(), static_cast<cudaStream_t>(stream.native()));
}

void FavorCuda(const FavorArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  WEIR_CHECK(args.maximum.empty() == args.log_decay.empty());
  WEIR_CHECK(args.x.row_size() == args.num_heads * args.features.dim(0) &&
             args.y.row_size() == args.num_heads * args.features.dim(1));
  CudaFavor f;
  f.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  f.slots = args.batch.slots.data<int32_t>();
  f.positions = args.batch.positions.data<int64_t>();
  f.x = args.x.data<float>();
  f.features = args.features.data<float>();
  f.y = args.y.data<float>();
  f.x_stride = args.x.row_stride();
  f.features_stride = args.features.row_stride();
  f.y_stride = args.y.row_stride();
  if (!args.maximum.empty()) {
    f.maximum = args.maximum.data<float>();
    f.log_decay = args.log_decay.data<float>();
    f.maximum_stride = args.maximum.row_stride();
    f.log_decay_stride = args.log_decay.row_stride();
  }
  f.num_seqs = args.batch.num_seqs;
  f.num_tokens = args.batch.num_tokens;
  f.max_seq_tokens = args.batch.max_seq_tokens;
  f.num_heads = args.num_heads;
  f.head_dim = static_cast<int>(args.features.dim(0));
  f.num_features = static_cast<int>(args.features.dim(1));
  f.root = std::pow(static_cast<float>(f.head_dim), -0.25f);
  f.scale = 1.0f / std::sqrt(static_cast<float>(f.num_features));
  LaunchCudaFavor(f, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
