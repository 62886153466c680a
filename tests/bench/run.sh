#!/bin/sh
# Builds the release preset's benchmarks and runs the end-to-end ones, about 6 minutes in all, on a machine that does
# nothing else. Arguments: which of decode, length, mixed_load, streaming; all without.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${WEIR_BENCH_BUILD:-$root/build/release}
benches=${*:-decode length mixed_load streaming}

cd "$root"
if [ -z "${WEIR_BENCH_BUILD:-}" ]; then cmake --preset release >/dev/null; fi
targets=
for bench in $benches; do targets="$targets weir_${bench}_bench"; done
# shellcheck disable=SC2086
cmake --build "$build" --target $targets

echo "load before: $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) processors"
for bench in $benches; do
  case $bench in
    # One second of each line; a few lines take longer, for a step of 256 sequences or a prompt is one iteration.
    decode) flags=--benchmark_min_time=1 ;;
    *) flags= ;;
  esac
  printf '\n== %s ==\n' "$bench"
  # shellcheck disable=SC2086
  "$build/tests/bench/weir_${bench}_bench" --benchmark_counters_tabular=true $flags
done
