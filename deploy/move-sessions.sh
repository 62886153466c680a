#!/usr/bin/env bash
# Moves the sessions of one owner from a server that is to be stopped to another one, or to the proxy before the others.
set -euo pipefail

usage() {
  cat <<USAGE
usage: deploy/move-sessions.sh FROM TO

Exports each session at the address FROM, imports it at TO under the same id, and deletes it at FROM. A session that
cannot be moved, as one whose turn runs, stays where it is and is named; the exit status is 1 then, and the command can
be given again. Snapshots stay behind.

  WEIR           the weir program, default: weir
  WEIR_API_KEY   the owner's key, where the servers ask for one
USAGE
}
case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -eq 2 ] || { usage >&2; exit 2; }
from=$1
to=$2
weir=${WEIR:-weir}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

list=$("$weir" --server "$from" sessions list)
moved=0
left=0
for name in $(awk 'NR > 1 { print $1 }' <<<"$list"); do
  if "$weir" --server "$from" sessions export "$name" "$folder/session" &&
    "$weir" --server "$to" sessions import "$folder/session" --id "${name#sessions/}" >/dev/null &&
    "$weir" --server "$from" sessions delete "$name"; then
    moved=$((moved + 1))
  else
    echo "$name stays at $from" >&2
    left=$((left + 1))
  fi
  rm -f "$folder/session"
done
echo "$moved sessions moved, $left left"
[ "$left" -eq 0 ]
