#!/bin/sh
# Fuzzes each target in turn, from the committed seeds. Needs clang-14 and its libFuzzer (Debian: clang-14,
# libclang-rt-14-dev).
# usage: tests/fuzz/run.sh [SECONDS [TARGET...]]   default: 1200 seconds, all targets
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-1200}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $(ls tests/fuzz/seeds)

cmake --preset fuzz >/dev/null
work=build/fuzz/work
for target in "$@"; do
  cmake --build build/fuzz --target "weir_fuzz_$target"
  mkdir -p "$work/$target"
  echo "== $target: $seconds s"
  # New inputs go to the work folder; a finding is left beside it as crash-…, timeout-… or oom-….
  "build/fuzz/tests/fuzz/weir_fuzz_$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 \
    -max_len=16384 -print_final_stats=1 -verbosity=0 -artifact_prefix="$work/$target-" \
    "$work/$target" "tests/fuzz/seeds/$target"
done
