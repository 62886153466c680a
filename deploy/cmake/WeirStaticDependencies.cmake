# The libraries of WeirDependencies.cmake under the same names, as archives and headers: programs of WEIR_GPU_BENCH run on
# machines that have NVIDIA's driver and nothing of ours. No gRPC, no protobuf, no server.

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)  # only named: nothing that is built here uses it
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)  # Debian's is static

# weir_static_library(target archive): an imported library by the archive's file name.
function(weir_static_library target archive)
  find_library(WEIR_ARCHIVE_${archive} ${archive} REQUIRED)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(${target} INTERFACE ${WEIR_ARCHIVE_${archive}})
endfunction()
weir_static_library(PkgConfig::PCRE2 libpcre2-8.a)
weir_static_library(PkgConfig::UTF8PROC libutf8proc.a)
set_target_properties(PkgConfig::UTF8PROC PROPERTIES INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)

# Highway as headers alone: one instruction set, so none is looked for at run time.
add_library(PkgConfig::HWY INTERFACE IMPORTED GLOBAL)
target_compile_definitions(PkgConfig::HWY INTERFACE HWY_COMPILE_ONLY_STATIC)

add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)

# Abseil's archives need each other in both directions, so each name stands for all of them.
find_library(WEIR_ABSL_BASE libabsl_base.a REQUIRED)
get_filename_component(absl_folder ${WEIR_ABSL_BASE} DIRECTORY)
file(GLOB absl_archives ${absl_folder}/libabsl_*.a)
add_library(weir_absl_archives INTERFACE)
target_link_libraries(weir_absl_archives INTERFACE
  -Wl,--start-group ${absl_archives} -Wl,--end-group Threads::Threads)
foreach(name any_invocable base cord flat_hash_map status statusor time)
  add_library(absl::${name} ALIAS weir_absl_archives)
endforeach()
