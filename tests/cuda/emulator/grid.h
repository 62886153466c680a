// What launches know of kernels.
#pragma once

#include <cstddef>

namespace weir::emulator {

// cudaFuncAttributeMaxDynamicSharedMemorySize.
size_t DynamicSharedLimit(const void* kernel);
void SetDynamicSharedLimit(const void* kernel, size_t bytes);

}  // namespace weir::emulator
