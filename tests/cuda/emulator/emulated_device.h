// The emulated twins of what runtime/device/cuda_launch.cuh gives kernels.
#pragma once

#include "tests/cuda/emulator/device_interface.h"

namespace weir {
namespace emulator {
template <class T>
inline char shared_tag = 0;  // its address names the type
}

// The block's dynamic shared memory, as many bytes as the launch asked for.
template <class T>
T* DynamicShared() {
  static_assert(alignof(T) <= 128);
  return static_cast<T*>(emulator::DynamicSharedBytes());
}

// The block's static shared memory of type T: one per T and kernel.
template <class T>
T& StaticShared() {
  static_assert(alignof(T) <= 16);  // what the product's own promises
  return *static_cast<T*>(emulator::StaticSharedBytes(&emulator::shared_tag<T>, sizeof(T), 16));
}

}  // namespace weir
