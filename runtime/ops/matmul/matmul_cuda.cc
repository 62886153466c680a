// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/matmul/matmul_cuda.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/embedding/embedding.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/pack.h"

namespace weir {
namespace {

constexpr int64_t kRowValues = 8;  // a row is padded to a multiple of these

int64_t PaddedValues(int64_t k) { return (k + kRowValues - 1) / kRowValues * kRowValues; }

// Device memory for kCudaScratchRows rows of `row_bytes`, of all matrices of the device; freed with the last
// of them.
absl::StatusOr<std::shared_ptr<DeviceBuffer>> ReserveScratch(Device& device, int64_t row_bytes) {
  static Mutex& mutex = *new Mutex;
  static auto& scratches = *new std::map<Device*, std::weak_ptr<DeviceBuffer>>;
  MutexLock lock(&mutex);
  std::erase_if(scratches, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<DeviceBuffer> scratch = scratches[&device].lock();
  const int64_t bytes = row_bytes * matmul::kCudaScratchRows;
  if (scratch != nullptr && scratch->bytes() >= bytes) return scratch;
  WEIR_ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(bytes));
  if (scratch == nullptr) {
    scratch = std::make_shared<DeviceBuffer>(std::move(buffer));
    scratches[&device] = scratch;
  } else {
    *scratch = std::move(buffer);
  }
  return scratch;
}

// Copies piece by piece through padded rows on the host, unless the weight has them already.
absl::Status Upload(const TensorView& weight, int64_t row_bytes, std::byte* packed, Stream& stream) {
  const int64_t n = weight.dim(0);
  const auto value_bytes = static_cast<int64_t>(DTypeBytes(weight.dtype()));
  const int64_t used_bytes = weight.dim(1) * value_bytes;
  const int64_t source_bytes = weight.row_stride() * value_bytes;  // between two rows
  const auto* source = static_cast<const std::byte*>(weight.raw());
  if (source_bytes == row_bytes && used_bytes == row_bytes) {
    stream.CopyToDevice(packed, source, n * row_bytes);
    return stream.Synchronize();
  }
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const int64_t piece = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, n);
  std::vector<std::byte> rows(static_cast<size_t>(piece * row_bytes));  // padding stays zero
  for (int64_t begin = 0; begin < n; begin += piece) {
    const int64_t count = std::min(piece, n - begin);
    for (int64_t r = 0; r < count; ++r)
      std::memcpy(rows.data() + r * row_bytes, source + (begin + r) * source_bytes,
                  static_cast<size_t>(used_bytes));
    stream.CopyToDevice(packed + begin * row_bytes, rows.data(), count * row_bytes);
    WEIR_RETURN_IF_ERROR(stream.Synchronize());  // `rows` is filled again
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<matmul::CudaPacked> matmul::PackForCuda(const TensorView& weight, Device& device) {
  const int64_t row_bytes = PaddedValues(weight.dim(1)) * static_cast<int64_t>(DTypeBytes(weight.dtype()));
  CudaPacked packed;
  WEIR_ASSIGN_OR_RETURN(packed.weight, device.Allocate(weight.dim(0) * row_bytes));
  if (weight.dtype() == DType::kBF16) {
    WEIR_ASSIGN_OR_RETURN(packed.scratch, ReserveScratch(device, row_bytes));
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
  a.w_row_bytes = PaddedValues(a.k) * static_cast<int64_t>(DTypeBytes(weight.dtype()));
  a.accumulate = args.accumulate;
  if (weight.scratch() != nullptr) {
    a.scratch = reinterpret_cast<unsigned char*>(weight.scratch()->data());
    a.scratch_rows = matmul::kCudaScratchRows;
  }
  const auto native = static_cast<cudaStream_t>(stream.native());
  const CudaMatmulForm form = ChooseCudaMatmulForm(a.m, a.n);
  if (weight.dtype() == DType::kBF16)
    LaunchCudaMatmulBf16(a, form, native);
  else
    LaunchCudaMatmulF32(a, form, native);
}

// Packed rows are plain rows here. The view is read only: GatherRowsCuda does not write its table.
void GatherPackedRowsCuda(const GatherPackedRowsArgs& args, Stream& stream) {
  WEIR_CHECK(args.table != nullptr && args.y.rank() == 2 && args.y.dim(1) == args.table->k());
  const PackedMatrix& table = *args.table;
  const TensorView rows(const_cast<std::byte*>(table.data()), table.dtype(),
                        {table.n(), PaddedValues(table.k())});
  GatherRowsCuda({rows.Columns(0, table.k()), args.index, args.y}, stream);
}

}  // namespace weir
