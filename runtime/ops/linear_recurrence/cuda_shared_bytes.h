// What the CUDA column's recurrence needs of a GPU, for who loads a model.
#pragma once

#include <cstdint>

#include "runtime/device/cuda_column.h"
#include "runtime/device/device.h"

namespace weir {

struct CudaSharedBytes {
  int64_t needed = 0;     // shared memory of the largest block for heads of this shape
  int64_t available = 0;  // to a block on the GPU of the device
};
// `queries`: query heads that read one state. The device is a GPU.
WEIR_CUDA_COLUMN CudaSharedBytes RecurrenceSharedBytes(int64_t state_dim, int64_t head_dim, int64_t queries,
                                                       Device& device);

}  // namespace weir
