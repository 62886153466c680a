# Settings under which builds of the same sources share a compiler cache, wherever each of them lies. Sourced from the
# folder of the sources; without ccache nothing changes.
# shellcheck shell=bash
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=locale CCACHE_COMPILERCHECK=content
fi
