// Stands before the toolkit's header of the same name. Declarations are NVIDIA's own, so an API that changes
// is a compile error and one that is not emulated is a link error; what only nvcc provides follows after
// them.
#pragma once

#include <math.h>

#include <cmath>
#include <cstring>

// The toolkit's template hands the launch pointers to arguments of unknown size; ours keeps their types.
#define cudaLaunchKernelEx weir_hidden_cudaLaunchKernelEx
#include_next <cuda_runtime.h>
#undef cudaLaunchKernelEx

#include "tests/cuda/emulator/emulated_device.h"
#include "tests/cuda/emulator/emulated_ptx.h"
