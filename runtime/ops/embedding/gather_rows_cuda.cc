// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/embedding/gather_rows_cuda.h"

#include "runtime/ops/embedding/embedding.h"

namespace weir {

void GatherRowsCuda(const GatherRowsArgs& args, Stream& stream) {
  const bool bf16 = args.table.dtype() == DType::kBF16;
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  WEIR_CHECK(args.table.rank() == 2 && args.y.rank() == 2 && args.y.dim(1) == args.table.dim(1));
  WEIR_CHECK(args.index.num_elements() == args.y.dim(0));
  if (args.y.num_elements() == 0) return;
  CudaGatherRows gather;
  if (bf16)
    gather.table = args.table.data<BF16>();
  else
    gather.table = args.table.data<float>();
  gather.index = args.index.data<int32_t>();
  gather.y = args.y.data<float>();
  gather.table_stride = args.table.row_stride();
  gather.y_stride = args.y.row_stride();
  gather.width = args.table.dim(1);
  LaunchCudaGatherRows(gather, bf16, args.y.dim(0), static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
