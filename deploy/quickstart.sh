#!/usr/bin/env bash
# From a bare Debian 12 machine to two twin decoders streaming a tale over gRPC. `--serve` leaves the server running.
set -euo pipefail
cd "$(dirname "$0")/.."

serve=0
address=127.0.0.1:7070
usage() {
  cat <<USAGE
usage: deploy/quickstart.sh [--serve] [--listen ADDRESS]

Installs the Debian packages that are missing, builds the release preset, starts the server on loopback with the zoo's
twins, streams one prompt from each, prints what a session of each costs, and stops the server.

  --serve            leave the server running, and say how to stop it
  --listen ADDRESS   default $address
USAGE
}
while [ $# -gt 0 ]; do
  case "$1" in
    --serve) serve=1 ;;
    --listen) address=${2:?--listen needs an address}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

step() { printf '\n== %s\n' "$*"; }
# shellcheck source=deploy/packages.sh
. deploy/packages.sh

step "1/4 packages"
weir_install "${weir_packages[@]}"

step "2/4 build (a few minutes the first time)"
cmake --preset release -DWEIR_TESTS=OFF -DWEIR_BENCHMARKS=OFF -B build/quickstart >/dev/null
cmake --build build/quickstart --target weir-server weir
server=build/quickstart/server/weir-server
weir=build/quickstart/client/weir

step "3/4 server on $address"
# 0: it is SERVING, 1: it loads or drains.
answer=0
"$weir" --server "$address" info --quiet 2>/dev/null || answer=$?
if [ "$answer" -le 1 ]; then
  echo "a server answers on $address already; stop it, or name another address with --listen" >&2
  exit 1
fi
log=build/quickstart/server.log
"$server" --listen "$address" --model model/zoo/tales-linear --model model/zoo/tales-softmax >"$log" 2>&1 </dev/null &
server_pid=$!
stop_server() { kill -TERM "$server_pid" 2>/dev/null && wait "$server_pid"; }
trap 'stop_server || true' EXIT
export WEIR_SERVER=$address
for _ in $(seq 100); do
  "$weir" info --quiet 2>/dev/null && break
  kill -0 "$server_pid" 2>/dev/null || { echo "the server ended; its log:" >&2; cat "$log" >&2; exit 1; }
  sleep 0.1
done
"$weir" info --quiet || { echo "the server is not ready; its log:" >&2; cat "$log" >&2; exit 1; }

step "4/4 one prompt, two twins"
prompt="Once upon a time there was a king who had three daughters."
# The number behind "$2" in the JSON line $1.
field() { printf '%s' "$1" | tr ',{}' '\n\n\n' | awk -F: -v key="\"$2\"" '$1 == key { print $2; exit }'; }
rows=()
for model in tales-linear tales-softmax; do
  printf '\n-- %s\n%s' "$model" "$prompt"
  "$weir" sessions create --model "$model" --id "quickstart-$model" >/dev/null
  "$weir" generate --session "quickstart-$model" --max-tokens 120 --seed 7 "$prompt"
  session=$("$weir" --json sessions get "quickstart-$model")
  cost=$("$weir" --json models get "$model")
  "$weir" sessions delete "quickstart-$model" >/dev/null
  per_block=$(field "$cost" block_tokens)
  blocks=$((per_block > 0 ? (100000 + per_block - 1) / per_block : 0))
  rows+=("$model" "$(field "$session" position)" "$(field "$session" state_bytes)"
    $(($(field "$cost" fixed_bytes) + blocks * $(field "$cost" block_bytes))))
done
printf '\n%-16s %10s %18s %24s\n' model tokens "bytes of state" "at 100,000 tokens"
printf '%-16s %10s %18s %24s\n' "${rows[@]}"
printf '(The last column is computed: tales-softmax itself stops at its context limit.)\n'

if [ "$serve" -eq 1 ]; then
  trap - EXIT
  disown "$server_pid"
  printf '\nThe server goes on as process %s. Try:\n  %s generate -m tales-linear "Once upon a time"\nStop it with:\n  kill %s\n' "$server_pid" "$weir" "$server_pid"
  exit 0
fi
trap - EXIT
stop_server
printf '\nThe server has stopped.\n'
