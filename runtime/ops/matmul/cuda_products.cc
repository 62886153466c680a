#include "runtime/ops/matmul/cuda_products.h"

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/cublas_lt.h"
#include "runtime/ops/matmul/cublas_check.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/pack.h"

namespace weir::matmul {
namespace {

using Shape = std::pair<int64_t, int64_t>;  // n, padded k

struct DeviceProducts {
  std::weak_ptr<CudaProductMemory> memory;
  std::map<Shape, std::weak_ptr<const CudaProduct>> products;
};

// Weights may be packed by any thread.
struct Registry {
  Mutex mutex;
  std::map<const Device*, DeviceProducts> devices ABSL_GUARDED_BY(mutex);
};
Registry& Products() {
  static Registry& registry = *new Registry;
  return registry;
}

absl::Status GrowTo(int64_t bytes, DeviceBuffer* buffer, Device& device) {
  if (buffer->bytes() >= bytes) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(DeviceBuffer larger, device.Allocate(bytes));
  *buffer = std::move(larger);
  return absl::OkStatus();
}

// What the weights of `device` share, with room for rows of x of padded_k values.
absl::StatusOr<std::shared_ptr<CudaProductMemory>> MemoryFor(int64_t padded_k, DeviceProducts& products,
                                                             Device& device) {
  std::shared_ptr<CudaProductMemory> memory = products.memory.lock();
  if (memory == nullptr) memory = std::make_shared<CudaProductMemory>();
  WEIR_RETURN_IF_ERROR(GrowTo(padded_k * 2 * kCudaScratchRows, &memory->rows, device));
  products.memory = memory;
  return memory;
}

// Once for all weights. Without cuBLASLt the project's own kernels serve; only a lack of memory is an error.
absl::Status LookForCublas(CudaProductMemory* memory, Device& device) {
  if (memory->cublas != nullptr || !memory->no_cublas.empty()) return absl::OkStatus();
  const absl::StatusOr<CublasLt> lt = LoadCublasLt();
  if (!lt.ok()) {
    memory->no_cublas = std::string(lt.status().message());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<CublasContext>> context = CublasContext::Create(*lt, device);
  if (context.ok())
    memory->cublas = *std::move(context);
  else if (absl::IsFailedPrecondition(context.status()))
    memory->no_cublas = std::string(context.status().message());
  else
    return context.status();
  return absl::OkStatus();
}

// Null where no algorithm keeps the batch law.
absl::StatusOr<std::unique_ptr<CublasPlan>> ChoosePlan(const CudaProductMemory& memory,
                                                       const CublasCheckMemory& check, Device& device) {
  std::unique_ptr<CublasPlan> plan = CublasPlan::Create(*memory.cublas, check.n, check.k);
  if (plan == nullptr) return plan;
  for (const cublasLtMatmulAlgo_t& candidate : plan->Candidates()) {
    plan->Use(candidate);
    WEIR_ASSIGN_OR_RETURN(const bool keeps_rows, KeepsRows(*plan, check, device));
    if (keeps_rows) return plan;
  }
  plan.reset();
  return plan;
}

// Devices that have no weights any more are forgotten.
DeviceProducts& ProductsOf(Registry& registry, const Device& device)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry.mutex) {
  std::erase_if(registry.devices, [](const auto& entry) { return entry.second.memory.expired(); });
  return registry.devices[&device];
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CudaProduct>> PlanCudaProduct(int64_t n, int64_t padded_k, void* weight,
                                                                   Device& device) {
  Registry& registry = Products();
  MutexLock lock(&registry.mutex);
  DeviceProducts& products = ProductsOf(registry, device);
  const Shape shape = {n, padded_k};
  if (std::shared_ptr<const CudaProduct> product = products.products[shape].lock()) return product;

  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<CudaProductMemory> memory,
                        MemoryFor(padded_k, products, device));
  WEIR_RETURN_IF_ERROR(LookForCublas(memory.get(), device));
  auto product = std::make_shared<CudaProduct>();
  product->memory = memory;
  if (memory->cublas != nullptr) {
    product->max_rows = MaxCublasRows(n);
    WEIR_ASSIGN_OR_RETURN(
        product->plan,
        ChoosePlan(*memory, {memory->rows.data(), weight, n, padded_k, product->max_rows}, device));
  }
  if (product->plan != nullptr)
    WEIR_RETURN_IF_ERROR(
        GrowTo(n * static_cast<int64_t>(sizeof(float)) * kStagedRows, &memory->staged, device));
  products.products[shape] = product;
  return product;
}

absl::StatusOr<std::shared_ptr<const CudaProduct>> OwnCudaProduct(int64_t padded_k, Device& device) {
  Registry& registry = Products();
  MutexLock lock(&registry.mutex);
  auto product = std::make_shared<CudaProduct>();
  WEIR_ASSIGN_OR_RETURN(product->memory, MemoryFor(padded_k, ProductsOf(registry, device), device));
  return product;
}

std::string DescribeCudaProducts(const Device& device) {
  Registry& registry = Products();
  MutexLock lock(&registry.mutex);
  const auto at = registry.devices.find(&device);
  const auto memory = at == registry.devices.end() ? nullptr : at->second.memory.lock();
  if (memory == nullptr) return "";
  std::string planned, own;  // shapes
  for (const auto& [shape, entry] : at->second.products) {
    const std::shared_ptr<const CudaProduct> product = entry.lock();
    if (product == nullptr) continue;
    std::string& shapes = product->plan != nullptr ? planned : own;
    shapes += fmt::format("{}{}x{}", shapes.empty() ? "" : ", ", shape.first, shape.second);
  }
  if (planned.empty() && own.empty()) return "";  // int8 alone, where there is no choice
  const std::string what = fmt::format("bf16 products on {}", device.name());
  if (memory->cublas == nullptr)
    return fmt::format("{}: by Weir's own kernels, as cuBLASLt cannot be used ({})", what, memory->no_cublas);
  std::string text = what + ":";
  if (!planned.empty())
    text += fmt::format(" by cuBLASLt {}, checked for every number of rows: {}{}",
                        memory->cublas->lt().Version(), planned, own.empty() ? "" : ";");
  if (!own.empty())
    text += fmt::format(
        " by Weir's own kernels, as no algorithm of cuBLASLt {} gave a row the same bits in every batch: {}",
        memory->cublas->lt().Version(), own);
  return text;
}

}  // namespace weir::matmul
