#!/usr/bin/env bash
# Everything that model/zoo/README.md shows, measured through running servers and drawn: a quarter of an hour on two cores
# that do nothing else.
set -euo pipefail
cd "$(dirname "$0")/../.."

programs=build/release
results=build/zoo
held_out=
all=scores,int8,growth,prefill,recall,favor,draw
parts=$all
quick=0
usage() {
  cat <<USAGE
usage: model/zoo/measure.sh --held-out FILE [--programs FOLDER] [--results FOLDER] [--only PARTS] [--quick]

--held-out: the text, which is not in this repository: tales/valid.txt of
  python3 model/training/tales.py --corpus CORPUS --out tales
--programs: a build tree; $programs without it, built first.
--results: where each part leaves what it measured; $results without it.
--only: some of $all, separated by commas. draw writes measured.json, the tables of
  model/zoo/README.md and the figures from the results of all parts (python3, its own library only).
--quick: a hundredth of the tokens and no drawing, to try the script.
USAGE
}
while [ $# -gt 0 ]; do
  case "$1" in
    --held-out) held_out=${2:?--held-out needs a file}; shift 2 ;;
    --programs) programs=${2:?--programs needs a folder}; shift 2 ;;
    --results) results=${2:?--results needs a folder}; shift 2 ;;
    --only) parts=${2:?--only needs parts}; shift 2 ;;
    --quick) quick=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
wanted() { [[ ,$parts, == *,$1,* ]]; }
for part in ${parts//,/ }; do
  [[ ,$all, == *,$part,* ]] || { echo "there is no part '$part'; --only takes some of $all" >&2; exit 2; }
done
if { wanted scores || wanted int8; } && [ ! -r "$held_out" ]; then
  echo "the held-out text '$held_out' cannot be read; see --help for what it is" >&2
  exit 2
fi
if [ "$programs" = build/release ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target weir-server weir weir_text_score weir_recall_score weir_favor_bench
elif [ ! -x "$programs/server/weir-server" ]; then
  echo "there is no '$programs/server/weir-server'; --programs names a build tree, such as build/release" >&2
  exit 2
fi
mkdir -p "$results"
export WEIR_SERVER=unix:$results/weir.sock
weir=$programs/client/weir
server=
stop_server() {
  if [ -z "$server" ]; then return; fi
  kill -TERM "$server" && wait "$server"
  server=
}
trap 'stop_server || true' EXIT

# start_server OPTION…
start_server() {
  "$programs/server/weir-server" --listen "$WEIR_SERVER" "$@" >"$results/server.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    if "$weir" info --quiet 2>/dev/null; then return; fi
    kill -0 "$server" 2>/dev/null || { cat "$results/server.log" >&2; exit 1; }
    sleep 0.1
  done
  echo "the server is not ready; its log: $results/server.log" >&2
  exit 1
}

# The softmax twin with room for 131,072 positions: its weights do not know of a limit.
softmax=$results/tales-softmax
rm -rf "$softmax" && mkdir "$softmax"
for file in "$PWD"/model/zoo/tales-softmax/*; do ln -s "$file" "$softmax/"; done
rm "$softmax/config.json"
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 131072/' model/zoo/tales-softmax/config.json >"$softmax/config.json"
twins=(--model "$softmax")
names=()
for mixer in linear performer mamba mamba2; do twins+=(--model "model/zoo/tales-$mixer"); done
for mixer in mamba mamba2 softmax performer linear; do names+=(--model "tales-$mixer"); done
fixed=linear,performer,mamba,mamba2
windows=0 reach=32768 positions=1000,10000,100000,1000000 softmax_positions=1000,10000,100000 itl=256 queries=4096 prompt=4096
if [ "$quick" -eq 1 ]; then windows=4 reach=1024 positions=100,1000 softmax_positions=100,1000 itl=8 queries=256 prompt=256; fi
# A part that fails leaves what was there.
keep() { mv "$results/part" "$results/$1"; }
score() { "$programs/tests/bench/zoo/weir_text_score" --server "$WEIR_SERVER" --windows "$windows" "$@" "$held_out"; }

if wanted scores || wanted growth || wanted prefill; then
  start_server "${twins[@]}" --slots 4 --kv-memory 1GiB
  if wanted scores; then
    echo "== bits per byte"
    score "${names[@]}" --reach "$reach" >"$results/part"
    keep scores.json
  fi
  if wanted prefill; then
    echo "== prefill"
    "$weir" loadtest --compare "$fixed,softmax" --prompt-tokens "$prompt" --output-tokens 1 --concurrency 1 --requests 8 \
      --json "$results/prefill.json" >/dev/null
  fi
  if wanted growth; then
    echo "== growth"
    "$weir" loadtest --compare "$fixed" --positions "$positions" --sessions 1 --itl-tokens "$itl" --json "$results/growth.json" \
      >"$results/growth.txt" || [ "$quick" -eq 1 ]
    "$weir" loadtest --compare softmax --positions "$softmax_positions" --sessions 1 --itl-tokens "$itl" \
      --json "$results/growth-softmax.json" >"$results/growth-softmax.txt" || [ "$quick" -eq 1 ]
  fi
  stop_server
fi
if wanted int8; then
  echo "== bits per byte, int8"
  start_server "${twins[@]}" --slots 4 --kv-memory 1GiB --weight-dtype int8
  score "${names[@]}" --reach 0 >"$results/part"
  keep int8.json
  stop_server
fi
if wanted recall; then
  echo "== associative recall"
  models=() recall=()
  for folder in model/zoo/recall/*/; do
    name=$(basename "$folder")
    models+=(--model "recall-$name=$folder")
    recall+=(--model "recall-$name")
  done
  start_server "${models[@]}" --tokenizer none --slots 4
  "$programs/tests/bench/zoo/weir_recall_score" --server "$WEIR_SERVER" "${recall[@]}" --queries "$queries" --json >"$results/part"
  keep recall.json
  stop_server
fi
if wanted favor; then
  echo "== Performer's features"
  "$programs/tests/bench/weir_favor_bench" "$([ "$quick" -eq 1 ] && echo 0.01 || echo 0.5)" >"$results/part"
  keep favor.txt
fi
if wanted draw && [ "$quick" -eq 0 ]; then
  echo "$(nproc) threads of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(date -u +%Y-%m-%d)" >"$results/machine.txt"
  python3 model/zoo/draw.py --results "$results"
fi
