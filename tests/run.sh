#!/usr/bin/env bash
# Installs, builds and runs everything that needs no GPU; ends with ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
container=1
usage() {
  cat <<USAGE
usage: tests/run.sh [--preset dev|release|asan|tsan] [--no-container] [ctest options]

Builds the preset (default: release) and runs its tests. Other arguments go to ctest, e.g. -R Engine.

  --no-container  leave out the test of the container image (release only), which installs buildah and podman
USAGE
}
while [ $# -gt 0 ]; do
  case "$1" in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --no-container) container=0; shift ;;
    -h | --help) usage; exit 0 ;;
    *) break ;;
  esac
done

# shellcheck source=deploy/packages.sh
. deploy/packages.sh
weir_install "${weir_packages[@]}" "${weir_test_packages[@]}"

if [ "$preset" = release ]; then  # the image compiles the same sources again, and then finds them compiled
  # shellcheck source=deploy/container/ccache.sh
  . deploy/container/ccache.sh
fi
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
if [ "$container" -eq 0 ]; then set -- -LE container "$@"; fi
# Many tests wait more than they compute.
CONTAINER_INSTALL=1 ctest --preset "$preset" --parallel "$(($(nproc) + 1))" "$@"
