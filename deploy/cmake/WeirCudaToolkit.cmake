# find_package(CUDAToolkit) with the arguments of this macro. CMake 3.25 marks the target CUDA::nvToolsExt as outdated for
# projects that ask for CMake 3.25 or newer, and fails where a toolkit (since 12.9) has no such library.
macro(weir_find_cuda_toolkit)
  set(weir_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit ${ARGN})
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${weir_minimum})
endmacro()
