// Kernel<Args>: one operation as a constant: a name and one function per backend.
#pragma once

#include "absl/status/status.h"
#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/device/cuda_column.h"
#include "runtime/device/device.h"

namespace weir {

template <class Args>
struct Kernel {
  using Function = void (*)(const Args&, Stream&);
  const char* name;
  Function cpu;
  Function cuda;  // null: no CUDA column in this program

  Function column(Backend backend) const { return backend == Backend::kCpu ? cpu : cuda; }
};

// To be asked while a model loads, so that a missing column is an error then and never in mid-stream.
template <class Args>
absl::Status RequireColumn(const Kernel<Args>& kernel, Backend backend) {
  if (kernel.column(backend) != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("operation '{}' has no {} column in this build; run this model with --device cpu",
                  kernel.name, backend == Backend::kCpu ? "cpu" : "cuda"));
}

template <class Args>
void Launch(const Kernel<Args>& kernel, const Args& args, Stream& stream) {
  const auto function = kernel.column(stream.backend());
  WEIR_CHECK(function != nullptr);
  function(args, stream);
}

}  // namespace weir
