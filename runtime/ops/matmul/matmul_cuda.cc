// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/matmul/matmul_cuda.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/device/cuda_stream.h"
#include "runtime/ops/embedding/embedding.h"
#include "runtime/ops/matmul/cuda_products.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/pack.h"

namespace weir {
namespace {

// A row is padded to a multiple of 8 values, and of 16 bytes.
int64_t PaddedValues(int64_t k, DType dtype = DType::kBF16) {
  const int64_t unit = dtype == DType::kI8 ? 16 : 8;
  return (k + unit - 1) / unit * unit;
}

int64_t RowBytes(int64_t k, DType dtype) {
  return PaddedValues(k, dtype) * static_cast<int64_t>(DTypeBytes(dtype));
}

void CopyRow(const std::byte* source, int64_t bytes, DType dtype, std::byte* row) {
  if (dtype != DType::kI8) {
    std::memcpy(row, source, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t k = 0; k < bytes; ++k) row[Int8Place(k)] = source[k];
}

// Copies piece by piece through padded rows on the host, unless the weight has them already.
absl::Status Upload(const TensorView& weight, int64_t row_bytes, std::byte* packed, Stream& stream) {
  const int64_t n = weight.dim(0);
  const auto value_bytes = static_cast<int64_t>(DTypeBytes(weight.dtype()));
  const int64_t used_bytes = weight.dim(1) * value_bytes;
  const int64_t source_bytes = weight.row_stride() * value_bytes;  // between two rows
  const auto* source = static_cast<const std::byte*>(weight.raw());
  if (source_bytes == row_bytes && used_bytes == row_bytes && weight.dtype() != DType::kI8) {
    stream.CopyToDevice(packed, source, n * row_bytes);
    return stream.Synchronize();
  }
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const int64_t piece = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, n);
  std::vector<std::byte> rows(static_cast<size_t>(piece * row_bytes));  // padding stays zero
  for (int64_t begin = 0; begin < n; begin += piece) {
    const int64_t count = std::min(piece, n - begin);
    for (int64_t r = 0; r < count; ++r)
      CopyRow(source + (begin + r) * source_bytes, used_bytes, weight.dtype(), rows.data() + r * row_bytes);
    stream.CopyToDevice(packed + begin * row_bytes, rows.data(), count * row_bytes);
    WEIR_RETURN_IF_ERROR(stream.Synchronize());  // `rows` is filled again
  }
  return absl::OkStatus();
}

// All rows by the product's plan, in pieces. Sums are rounded as the project's own kernels do: the product
// plus the bias, and then the old y plus that.
void MultiplyByPlan(CudaMatmul a, const matmul::CudaProduct& product, CudaStream& stream) {
  const matmul::CublasPlan& plan = *product.plan;
  const auto native = static_cast<cudaStream_t>(stream.native());
  const bool direct = plan.TakesOutput(a.y, a.y_stride) && !(a.accumulate && a.bias != nullptr);
  const int64_t piece = direct ? product.max_rows : std::min(product.max_rows, matmul::kStagedRows);
  float* const staged = reinterpret_cast<float*>(product.memory->staged.data());
  for (int64_t rows = a.m; rows > 0; rows -= a.m) {
    a.m = std::min(rows, piece);
    LaunchCudaRoundRows(a, native);
    const cublasStatus_t status = direct
                                      ? plan.Run(a.scratch, a.w, a.y, a.y_stride, a.m, a.accumulate, native)
                                      : plan.Run(a.scratch, a.w, staged, a.n, a.m, false, native);
    // It was taken for each number of rows when it was checked, so the device is what failed.
    if (status != CUBLAS_STATUS_SUCCESS) stream.Fail(cudaErrorUnknown);
    if (!direct)
      LaunchCudaFinishRows(a, staged, a.n, native);
    else if (a.bias != nullptr)
      LaunchCudaFinishRows(a, a.y, a.y_stride, native);
    a.x += a.m * a.x_stride;
    a.y += a.m * a.y_stride;
  }
}

void GatherInt8(const GatherPackedRowsArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda && args.index.num_elements() == args.y.dim(0));
  if (args.y.dim(0) == 0) return;
  CudaGatherInt8 gather;
  gather.w = reinterpret_cast<const unsigned char*>(args.table->data());
  gather.scales = args.table->scales();
  gather.index = args.index.data<int32_t>();
  gather.y = args.y.data<float>();
  gather.w_row_bytes = RowBytes(args.table->k(), DType::kI8);
  gather.y_stride = args.y.row_stride();
  gather.num_tokens = args.y.dim(0);
  gather.width = args.table->k();
  LaunchCudaGatherInt8(gather, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace

absl::StatusOr<matmul::CudaPacked> matmul::PackForCuda(const TensorView& weight, Device& device) {
  const int64_t row_bytes = RowBytes(weight.dim(1), weight.dtype());
  CudaPacked packed;
  WEIR_ASSIGN_OR_RETURN(packed.weight, device.Allocate(weight.dim(0) * row_bytes));
  if (weight.dtype() == DType::kBF16) {
    WEIR_ASSIGN_OR_RETURN(packed.product, PlanCudaProduct(weight.dim(0), PaddedValues(weight.dim(1)),
                                                          packed.weight.data(), device));
  } else if (weight.dtype() == DType::kI8) {
    WEIR_ASSIGN_OR_RETURN(packed.product, OwnCudaProduct(PaddedValues(weight.dim(1)), device));
  }
  WEIR_RETURN_IF_ERROR(Upload(weight, row_bytes, packed.weight.data(), device.stream()));
  return packed;
}

void MatmulCuda(const MatmulArgs& args, Stream& stream) {
  const PackedMatrix& weight = *args.weight;
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  WEIR_CHECK(args.x.rank() == 2 && args.y.rank() == 2 && args.y.dim(0) == args.x.dim(0));
  WEIR_CHECK(args.x.dim(1) == weight.k() && args.y.dim(1) == weight.n());
  WEIR_CHECK(args.bias.empty() || args.bias.num_elements() == weight.n());
  CudaMatmul a;
  a.m = args.x.dim(0);
  a.n = weight.n();
  a.k = weight.k();
  if (a.m == 0) return;
  a.x = args.x.data<float>();
  a.w = reinterpret_cast<const unsigned char*>(weight.data());
  a.bias = args.bias.empty() ? nullptr : args.bias.data<float>();
  a.y = args.y.data<float>();
  a.x_stride = args.x.row_stride();
  a.y_stride = args.y.row_stride();
  a.w_row_bytes = RowBytes(a.k, weight.dtype());
  a.x_row_bytes = RowBytes(a.k, DType::kBF16);
  a.scales = weight.scales();
  a.accumulate = args.accumulate;
  if (const matmul::CudaProduct* const product = weight.cuda_product()) {
    a.scratch = reinterpret_cast<unsigned char*>(product->memory->rows.data());
    a.scratch_rows = matmul::kCudaScratchRows;
    if (product->plan != nullptr) return MultiplyByPlan(a, *product, static_cast<CudaStream&>(stream));
  }
  const auto native = static_cast<cudaStream_t>(stream.native());
  const CudaMatmulForm form = ChooseCudaMatmulForm(a.m, a.n);
  if (weight.dtype() == DType::kBF16)
    LaunchCudaMatmulBf16(a, form, native);
  else if (weight.dtype() == DType::kI8)
    LaunchCudaMatmulInt8(a, form, native);
  else
    LaunchCudaMatmulF32(a, form, native);
}

// Packed rows are plain rows here, but for int8. The view is read only: GatherRowsCuda does not write its
// table.
void GatherPackedRowsCuda(const GatherPackedRowsArgs& args, Stream& stream) {
  WEIR_CHECK(args.table != nullptr && args.y.rank() == 2 && args.y.dim(1) == args.table->k());
  const PackedMatrix& table = *args.table;
  if (table.dtype() == DType::kI8) return GatherInt8(args, stream);
  const TensorView rows(const_cast<std::byte*>(table.data()), table.dtype(),
                        {table.n(), PaddedValues(table.k())});
  GatherRowsCuda({rows.Columns(0, table.k()), args.index, args.y}, stream);
}

}  // namespace weir
