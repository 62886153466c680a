// The mark of everything that only a program with the CUDA column has.
#pragma once

// Declares a function of the CUDA column. A program has it when it links that column (weir_cuda_column in
// deploy/cmake/WeirTargets.cmake), which is how one object file serves builds with it, without it, and over
// the emulated device of the tests; elsewhere its address is null.
#define WEIR_CUDA_COLUMN __attribute__((weak))
