# Compiler settings shared by every target of our own.

include(WeirCudaToolkit)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(weir_compile INTERFACE)
target_include_directories(weir_compile INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(weir_compile INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fno-math-errno>)
# x86-64-v2 is the floor; wider kernels are chosen at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(weir_compile INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 reports std::string concatenation by mistake (its bug 105651).
  target_compile_options(weir_compile INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(WEIR_SANITIZE)
  # Instrumented code makes gcc 12 see uninitialised uses where there are none; the other presets still look.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(weir_compile INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
  target_compile_options(weir_compile INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(weir_compile INTERFACE -fsanitize=${WEIR_SANITIZE})
endif()

if(WEIR_FUZZ)
  target_compile_options(weir_compile INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(WEIR_CUDA)
  # CMake 3.25 has no C++20 entry for CUDA: name the option before any target exists.
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(WEIR_CUDA_ARCHITECTURES 80 90 100 120 CACHE STRING "Compute capabilities that kernels are compiled for")
  set(CMAKE_CUDA_ARCHITECTURES ${WEIR_CUDA_ARCHITECTURES})
  # A product and a sum are rounded apart unless a kernel says otherwise, so that bits do not depend on the compiler.
  string(APPEND CMAKE_CUDA_FLAGS " -fmad=false")
  if(WEIR_GPU_BENCH AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")  # a third of the bytes to carry
  endif()
  weir_find_cuda_toolkit(REQUIRED)
endif()
