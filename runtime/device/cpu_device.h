// The CPU backend's stream, for `_cpu.cc` files: where a kernel finds the worker pool.
#pragma once

#include "runtime/base/check.h"
#include "runtime/device/device.h"
#include "runtime/device/worker_pool.h"

namespace weir {

inline WorkerPool& PoolOf(Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCpu);
  return *static_cast<WorkerPool*>(stream.native());
}

}  // namespace weir
