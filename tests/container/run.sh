#!/usr/bin/env bash
# Builds the image and tries it from outside. Exit status: 0 passed, 1 failed, 77 this machine cannot.
# usage: tests/container/run.sh WEIR      (the client, built for this machine)
# CONTAINER_INSTALL=1 installs what is missing; CONTAINER_KEEP=1 keeps image and storage for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
weir=$(readlink -f "${1:?usage: tests/container/run.sh WEIR}")

# shellcheck source=deploy/packages.sh
. deploy/packages.sh
# shellcheck source=tests/container/engine.sh
. tests/container/engine.sh
# shellcheck source=tests/container/checks.sh
. tests/container/checks.sh

[ "$(id -u)" -eq 0 ] || skip "buildah and podman need root here"
if [ "${CONTAINER_INSTALL:-0}" = 1 ]; then
  weir_install "${weir_container_packages[@]}" || skip "could not install ${weir_container_packages[*]}"
fi
for program in buildah podman runc mmdebstrap; do
  command -v "$program" >/dev/null || skip "$program is not installed; deploy/packages.sh names the packages"
done

engine_start
trap engine_stop EXIT
step "base image, of Debian's packages"
make_base >"$engine_run/base.log" 2>&1 || { tail -5 "$engine_run/base.log"; skip "no base image could be made"; }
step "image"
if ! build_image . >"$engine_run/build.log" 2>&1; then
  tail -40 "$engine_run/build.log"
  echo "the Dockerfile does not build"
  exit 1
fi
sed -n '/^what the image holds/,$p' "$engine_run/build.log" | sed '/^\[/,$d;/^STEP/,$d'
grep -E '^ *(Hits|Misses):' "$engine_run/build.log" | head -2 || true

podman run --rm --network none --entrypoint /usr/bin/weir-server "$image" --version >"$engine_run/version" ||
  skip "containers do not run here: $(podman run --rm --network none "$image" --version 2>&1 | tail -1)"

for group in image start mounts port confinement stream memory drain death; do
  step "$group"
  "check_$group"
done
step "end"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
