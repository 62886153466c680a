#!/usr/bin/env bash
# The claim, measured: 256 sessions over the zoo's five models grown together to position 100,000, one of each to 1,000,000,
# and as many sessions as 8 GiB hold. Twenty minutes or more on two cores that do nothing else; ends with 1 if a verdict fails.
set -euo pipefail
cd "$(dirname "$0")/../../.."

programs=build/release
results=build/constant-memory
scale=1
usage() {
  cat <<USAGE
usage: tests/bench/constant_memory/run.sh [--programs FOLDER] [--results FOLDER] [--quick]

--programs: a build that has server/weir-server and client/weir; $programs without it, built first.
--results: where the pages, tables and logs go; $results without it.
--quick: a hundredth of the tokens and of the arena, to try the script; such a run reaches no verdict.
USAGE
}
while [ $# -gt 0 ]; do
  case "$1" in
    --programs) programs=${2:?--programs needs a folder}; shift 2 ;;
    --results) results=${2:?--results needs a folder}; shift 2 ;;
    --quick) scale=100; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
if [ "$programs" = build/release ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target weir-server weir
fi
mkdir -p "$results"
export WEIR_SERVER=unix:$results/weir.sock
server=
stop_server() {
  if [ -z "$server" ]; then return; fi
  kill -TERM "$server" && wait "$server"
  server=
}
trap 'stop_server || true' EXIT

# start_server LOG OPTION…
start_server() {
  local log=$results/$1
  shift
  "$programs/server/weir-server" --listen "$WEIR_SERVER" "$@" >"$log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    if "$programs/client/weir" info --quiet 2>/dev/null; then return; fi
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  echo "the server is not ready; its log: $log" >&2
  exit 1
}

failed=0
# measure NAME OPTION…: one load test, its page and tables.
measure() {
  local name=$1
  shift
  printf '\n== weir loadtest %s\n' "$*"
  "$programs/client/weir" loadtest "$@" --html "$results/$name.html" --csv "$results/$name.csv" \
    --json "$results/$name.json" | tee "$results/$name.txt" || failed=1
}

echo "load before: $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) processors" | tee "$results/machine.txt"
models=()
for mixer in linear performer mamba mamba2 softmax; do models+=(--model "model/zoo/tales-$mixer"); done
all=linear,performer,mamba,mamba2,softmax
# Enough for a time per token: a server sends in one message what waits.
itl=$((256 / scale))

# 52 sessions of each model are 260 in all, a model at a time. 3 GiB of KV blocks are full before 52 sessions of tales-softmax
# reach its context limit.
start_server sessions.log "${models[@]}" --slots 64 --state-memory 1GiB --kv-memory 3GiB
measure sessions --compare $all --sessions 52 --itl-tokens $itl --positions $((1000 / scale)),$((10000 / scale)),$((100000 / scale))
stop_server
start_server million.log "${models[@]}" --slots 64 --state-memory 1GiB --kv-memory 3GiB
measure million --compare $all --sessions 1 --itl-tokens $itl \
  --positions $((1000 / scale)),$((10000 / scale)),$((100000 / scale)),$((1000000 / scale))
stop_server
start_server capacity.log --model model/zoo/tales-linear --slots $((13411 / scale)) \
  --state-memory $((8192 / scale))MiB --max-waiting 4096
measure capacity -m tales-linear --capacity
stop_server
exit "$failed"
