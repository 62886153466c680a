#!/usr/bin/env bash
# Inside the image's build stage: builds one preset; with TESTS=on everything, and runs the tests.
# usage: deploy/container/build.sh PRESET on|off [cmake options]
set -euo pipefail
cd "$(dirname "$0")/../.."

preset=$1
tests=$2
shift 2
export CCACHE_DIR=/ccache CCACHE_STATSLOG=/tmp/ccache.log  # the cache may be a mount that outlives the build
# shellcheck source=deploy/container/ccache.sh
. deploy/container/ccache.sh

case "$tests" in
  on) tests/run.sh --preset "$preset" --no-container ;;
  off)
    cmake --preset "$preset" -DWEIR_TESTS=OFF -DWEIR_BENCHMARKS=OFF "$@"
    cmake --build --preset "$preset" --target weir-server weir
    ;;
  *) echo "TESTS is on or off, not '$tests'" >&2; exit 2 ;;
esac
if command -v ccache >/dev/null; then ccache --show-log-stats; fi
