include(GoogleTest)

# weir_library(name SOURCES a.cc ... DEPS other ...): one module folder, one static library.
function(weir_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC weir_compile ${arg_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE weir_compile ${arg_DEPS})
  endif()
endfunction()

# weir_cuda_column(a_cuda.cc a_cuda.cu ...): sources of the CUDA column, compiled by nvcc for the product
# (target weir_cuda) and by the C++ compiler over the emulated device for tests (tests/cuda).
define_property(GLOBAL PROPERTY WEIR_CUDA_COLUMN_SOURCES)
function(weir_cuda_column)
  foreach(source ${ARGN})
    set_property(GLOBAL APPEND PROPERTY WEIR_CUDA_COLUMN_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
endfunction()
function(weir_cuda_column_sources variable)
  get_property(sources GLOBAL PROPERTY WEIR_CUDA_COLUMN_SOURCES)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# weir_link_cuda(target): gives a program the CUDA column where this build has it.
function(weir_link_cuda target)
  if(WEIR_CUDA)
    target_link_libraries(${target} PRIVATE weir_cuda)
  endif()
endfunction()

# weir_quick_to_compile(target): code that computes little is not optimised under sanitizers, which halves the time
# to compile it.
function(weir_quick_to_compile target)
  if(WEIR_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# weir_unity(target [TESTS] [ALONE a.cc ...]): with WEIR_UNITY (or, of TESTS, WEIR_UNITY_TESTS), reads what its files all
# include (gRPC, protobuf, Abseil, GoogleTest) once for eight of them. ALONE: those whose local names others have too.
function(weir_unity target)
  cmake_parse_arguments(arg "TESTS" "" "ALONE" ${ARGN})
  if(WEIR_UNITY OR (arg_TESTS AND WEIR_UNITY_TESTS))
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # A class of a .cc file may have members of types in its anonymous namespace; seen as a header's that would be wrong.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    set_source_files_properties(${arg_ALONE} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# weir_test(name SOURCES a_test.cc ... DEPS lib ... [TIMEOUT s] [PREFIX p] [COST c]): one GoogleTest program; each TEST is
# a ctest entry, its name behind the prefix. ctest begins with those of the highest cost, so that no long one is last.
function(weir_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;PREFIX;COST" "SOURCES;DEPS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_COST)
    set(arg_COST 0)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE weir_compile ${arg_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE WEIR_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # EXPECT_… as the whole of an if is a statement with an else inside.
  target_compile_options(${name} PRIVATE -Wno-dangling-else)
  gtest_discover_tests(${name} TEST_PREFIX "${arg_PREFIX}" DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endfunction()

# weir_benchmark(name SOURCES a_bench.cc ... DEPS lib ...): one Google Benchmark program; never a test.
function(weir_benchmark name)
  if(NOT WEIR_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE weir_compile ${arg_DEPS} benchmark::benchmark)
  target_compile_definitions(${name} PRIVATE WEIR_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()
