#!/usr/bin/env bash
# Inside the image's build stage: builds one preset; with TESTS=on everything, and runs the tests.
# usage: deploy/container/build.sh PRESET on|off
set -euo pipefail
cd "$(dirname "$0")/../.."

preset=$1
tests=$2
# /ccache may be a mount that outlives the build. Paths do not count, so a build of the same sources elsewhere fills it too.
export CCACHE_DIR=/ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache

case "$tests" in
  on) tests/run.sh --preset "$preset" --no-container ;;
  off)
    cmake --preset "$preset" -DWEIR_TESTS=OFF -DWEIR_BENCHMARKS=OFF
    cmake --build --preset "$preset" --target weir-server weir
    ;;
  *) echo "TESTS is on or off, not '$tests'" >&2; exit 2 ;;
esac
ccache --show-stats
