#!/usr/bin/env bash
# Installs, builds and runs everything that needs no GPU; ends with ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
usage() {
  cat <<USAGE
usage: tests/run.sh [--preset dev|release|asan|tsan] [ctest options]

Builds the preset (default: release) and runs its tests. Other arguments go to ctest, e.g. -R Engine.
USAGE
}
while [ $# -gt 0 ]; do
  case "$1" in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) break ;;
  esac
done

# shellcheck source=deploy/packages.sh
. deploy/packages.sh
weir_install "${weir_packages[@]}" "${weir_test_packages[@]}"

cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel 2 "$@"
