#include "runtime/device/cublas_lt.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "runtime/base/function_ref.h"

#if defined(WEIR_CUDA_EMULATED)
namespace weir::emulator {
void* CublasLtFunction(const char* name);
}
#endif

namespace weir {
namespace {

// Null where a function is missing.
using Lookup = FunctionRef<void*(const char* name)>;

absl::StatusOr<CublasLt> Table(const std::string& library, Lookup lookup) {
  CublasLt table;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(lookup(name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
#define WEIR_FIND(name) find(table.name, "cublasLt" #name)
  WEIR_FIND(GetVersion);
  WEIR_FIND(GetStatusName);
  WEIR_FIND(Create);
  WEIR_FIND(Destroy);
  WEIR_FIND(MatmulDescCreate);
  WEIR_FIND(MatmulDescDestroy);
  WEIR_FIND(MatmulDescSetAttribute);
  WEIR_FIND(MatrixLayoutInit_internal);
  WEIR_FIND(MatmulPreferenceCreate);
  WEIR_FIND(MatmulPreferenceDestroy);
  WEIR_FIND(MatmulPreferenceSetAttribute);
  WEIR_FIND(MatmulAlgoGetHeuristic);
  WEIR_FIND(MatmulAlgoConfigGetAttribute);
  WEIR_FIND(Matmul);
#undef WEIR_FIND
  if (missing == nullptr) return table;
  return absl::NotFoundError(fmt::format("{} has no {}", library, missing));
}

}  // namespace

std::string CublasLt::Version() const {
  const size_t version = GetVersion();  // major * 10000 + minor * 100 + patch
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

absl::StatusOr<CublasLt> LoadCublasLtFrom(std::span<const char* const> libraries) {
  std::string tried;
  for (const char* const name : libraries) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const error = dlerror();
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", error != nullptr ? error : name);
      continue;
    }
    absl::StatusOr<CublasLt> table =
        Table(name, [library](const char* function) { return dlsym(library, function); });
    if (table.ok()) return table;
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", std::string(table.status().message()));
    dlclose(library);
  }
  return absl::NotFoundError(tried);
}

#if defined(WEIR_CUDA_EMULATED)
absl::StatusOr<CublasLt> LoadCublasLt() {
  return Table("libcublasLt.so.13", [](const char* name) { return emulator::CublasLtFunction(name); });
}
#else
// What is declared alike in both: the calls, attributes and enumerators used here are those of CUDA 12 too.
absl::StatusOr<CublasLt> LoadCublasLt() {
  static constexpr const char* kLibraries[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  return LoadCublasLtFrom(kLibraries);
}
#endif

}  // namespace weir
