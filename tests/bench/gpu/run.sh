#!/usr/bin/env bash
# One run on a machine with a GPU, in under ten minutes: the tests on the device, the benchmark's table, PyTorch beside it
# and compute-sanitizer, the last two where they are found. Builds nothing; the programs come from build.sh.
# Ends with 0 if all that ran passed, 1 if something failed, 2 if nothing could run.
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 2

usage() {
  cat <<USAGE
usage: tests/bench/gpu/run.sh [--programs FOLDER] [--results FOLDER] [--seconds N]

--programs: where weir-gpu-bench and weir-gpu-test are; build/gpu-bench/gpu without it.
--results: where gpu-bench.md and the logs go, build/gpu-results without it.
--seconds: for everything, 570 without it.
USAGE
}
programs=build/gpu-bench/gpu
results=build/gpu-results
seconds=570
while [ $# -gt 0 ]; do
  case "$1" in
    --programs) programs=${2:?--programs needs a folder}; shift 2 ;;
    --results) results=${2:?--results needs a folder}; shift 2 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

case "$seconds" in
  '' | *[!0-9]*) echo "run.sh: --seconds takes a whole number, not '$seconds'" >&2; exit 2 ;;
esac

bench=$programs/weir-gpu-bench
tests=$programs/weir-gpu-test
for program in "$bench" "$tests"; do
  if [ ! -x "$program" ]; then
    echo "run.sh: no program $program; build it with tests/bench/gpu/build.sh where NVIDIA's toolkit is" >&2
    exit 2
  fi
done
mkdir -p "$results" || exit 2
table=$results/gpu-bench.md
failed=0
# The least of what a part may take and what is left of everything.
left() {
  local rest=$((seconds - SECONDS))
  echo $((rest < $1 ? (rest > 1 ? rest : 1) : $1))
}
say() { printf '%s\n' "$@" | tee -a "$table"; }

# A program that finds no GPU says why, and there is nothing to do.
"$bench" --seconds 0.001 >/dev/null 2>"$results/bench.log"
if [ $? -eq 2 ]; then
  cat "$results/bench.log" >&2
  exit 2
fi

clocks_of() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu \
    --format=csv
}
python=
for candidate in "${PYTHON:-python3}" python; do
  if "$candidate" -c 'import torch' >/dev/null 2>&1; then python=$candidate; break; fi
done
# cuBLASLt: with PyTorch, with the toolkit, or where the loader looks.
cublaslt=
if [ -n "$python" ]; then
  site=$("$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
  cublaslt=$(find "$site/nvidia" "$site/torch/lib" -name 'libcublasLt.so.*' 2>/dev/null | sort -V | tail -1)
fi
for folder in /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib; do
  if [ -z "$cublaslt" ]; then cublaslt=$(find "$folder"/ -maxdepth 1 -name 'libcublasLt.so.*' 2>/dev/null | sort -V | tail -1); fi
done
# Before what the driver itself may have put there.
loader_path=${LD_LIBRARY_PATH-}
if [ -n "$cublaslt" ]; then export LD_LIBRARY_PATH=${cublaslt%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi

: >"$table"
sampler=
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits -l 1 \
    >"$results/clocks.csv" 2>/dev/null &
  sampler=$!
fi
timeout "$(left 330)" "$bench" --seconds "$(left 250)" --values "$results/values.tsv" \
  2>"$results/bench.log" | tee -a "$table"
status=${PIPESTATUS[0]}
if [ -n "$sampler" ]; then
  kill "$sampler"
  wait "$sampler" 2>/dev/null
fi
if [ "$status" -ne 0 ]; then
  failed=1
  say "" "weir-gpu-bench ended with $status:" "$(tail -5 "$results/bench.log")"
fi
if [ -n "$sampler" ]; then
  say "" '```' "$(clocks_of)" '```'
  say "While it ran (SM MHz, memory MHz, W, °C), least and most: $(awk -F', *' '
    { for (i = 1; i <= 4; ++i) { if (NR == 1 || $i + 0 < least[i]) least[i] = $i + 0; if ($i + 0 > most[i]) most[i] = $i + 0 } }
    END { for (i = 1; i <= 4; ++i) printf "%s%g to %g", (i == 1 ? "" : ", "), least[i], most[i] }' "$results/clocks.csv")"
else
  say "" "Clocks: no nvidia-smi here."
fi

if [ -n "$python" ]; then
  timeout "$(left 90)" "$python" tests/bench/gpu/torch_twin.py --values "$results/values.tsv" --seconds "$(left 60)" \
    2>"$results/torch.log" | tee -a "$table"
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then say "" "PyTorch's part failed: $(tail -1 "$results/torch.log")"; fi
else
  say "" "## PyTorch" "" "Not found."
fi

say "" "## Tests on the device" ""
timeout "$(left 180)" "$tests" --gtest_brief=1 >"$results/tests.log" 2>&1
status=$?
say "weir-gpu-test ended with $status: $(grep -E '^\[  (PASSED|SKIPPED|FAILED)  \]|FAILED TEST|tests ran' "$results/tests.log" | tr '\n' ' ')"
[ "$status" -eq 0 ] || failed=1

# The models again, on the project's own products.
if [ -n "$cublaslt" ]; then
  LD_LIBRARY_PATH=$loader_path timeout "$(left 60)" "$tests" --gtest_brief=1 --gtest_filter='*/Laws.*:*Golden*' \
    >>"$results/tests.log" 2>&1
  status=$?
  say "The same without cuBLASLt, decoders only: ended with $status."
  [ "$status" -eq 0 ] || failed=1
fi

# Operations only, at reduced sizes: everything is a hundred times slower.
sanitizer=$(command -v compute-sanitizer || find /usr/local/cuda*/bin /usr/local/cuda*/compute-sanitizer -name compute-sanitizer 2>/dev/null | head -1)
if [ -z "$sanitizer" ]; then
  say "compute-sanitizer: not found."
else
  for tool in memcheck racecheck; do
    rest=$(left 100)
    if [ "$rest" -lt 20 ]; then say "compute-sanitizer $tool: no time left."; continue; fi
    WEIR_REDUCED_TESTS=1 timeout "$rest" "$sanitizer" --tool "$tool" --error-exitcode 9 "$tests" --gtest_brief=1 \
      --gtest_filter='-*/Laws.*:*Golden*:*Reference*:*Zoo*:*LlamaCpp*:*Engine*:*Turn*:*Session*:*Snapshot*' \
      >"$results/$tool.log" 2>&1
    status=$?
    if grep -q 'Device not supported' "$results/$tool.log"; then
      say "compute-sanitizer $tool: it does not support this device here."
      continue
    fi
    case $status in
      0) say "compute-sanitizer $tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$results/$tool.log" | tail -1)" ;;
      124) say "compute-sanitizer $tool: cut off after $rest s; until then $(grep -c '=========.*\(Invalid\|Error:\|hazard\)' "$results/$tool.log") findings." ;;
      *) say "compute-sanitizer $tool ended with $status; see $tool.log"; failed=1 ;;
    esac
  done
fi
find "$results" -maxdepth 1 -name '*.log' -empty -delete
say "" "$SECONDS s in all."
exit "$failed"
