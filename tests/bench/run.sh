#!/bin/sh
# Builds the release preset's benchmarks and runs the end-to-end ones, about 4 minutes in all, on a machine that does
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
    # A second of each line, or one iteration where that takes longer.
    decode) flags='--benchmark_counters_tabular=true --benchmark_min_time=1' ;;
    streaming) flags=--benchmark_counters_tabular=true ;;
    *) flags= ;;  # one line for each model: too many figures for columns
  esac
  printf '\n== %s ==\n' "$bench"
  # shellcheck disable=SC2086
  "$build/tests/bench/weir_${bench}_bench" $flags
done
