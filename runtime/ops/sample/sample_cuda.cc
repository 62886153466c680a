// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/sample/sample_cuda.h"

#include "runtime/ops/sample/sample.h"

namespace weir {

void SampleRowsCuda(const SampleRowsArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  WEIR_CHECK(args.num_ids > 0 && args.num_ids <= args.logits.row_size());
  WEIR_CHECK(args.params.row_size() * 4 == sizeof(RowParams) &&
             args.params.row_stride() * 4 == sizeof(RowParams));
  WEIR_CHECK(args.samples.row_size() * 4 == sizeof(RowSample) &&
             args.samples.row_stride() * 4 == sizeof(RowSample));
  WEIR_CHECK(args.samples.num_rows() >= args.params.num_rows());
  CudaSampleRows rows;
  rows.logits = args.logits.data<float>();
  rows.stride = args.logits.row_stride();
  rows.num_ids = args.num_ids;
  rows.params = reinterpret_cast<const RowParams*>(args.params.data<int32_t>());
  rows.samples = reinterpret_cast<RowSample*>(args.samples.data<int32_t>());
  LaunchCudaSampleRows(rows, static_cast<int>(args.params.num_rows()),
                       static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
