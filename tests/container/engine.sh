# Containers without a Docker engine: buildah builds, podman runs, both with storage of their own. Sourced by run.sh.
# shellcheck shell=bash

# All that is kept lies here. CONTAINER_KEEP=1: after the run, too, so that the next one builds only what has changed.
storage=${CONTAINER_STORAGE:-/var/tmp/weir-container}
engine_run=$storage/run  # podman's database pins this path, so each run begins by emptying it
base_image=localhost/weir-base:bookworm
image=localhost/weir:test

engine=(--root "$storage/store" --runroot "$engine_run/root" --storage-driver "${CONTAINER_DRIVER:-overlay}")
buildah() { command buildah "${engine[@]}" "$@"; }
# runc: crun refuses a mixture of old and new control groups.
podman() { command podman "${engine[@]}" --runtime runc --cgroup-manager cgroupfs "$@"; }

skip() { echo "SKIPPED: $*"; exit 77; }

engine_unmount() {
  awk -v below="$storage/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | while read -r mount; do
    umount -l "$mount"
  done
}

engine_start() {
  mkdir -p "$storage"
  exec {engine_lock}>"$storage/lock"
  flock -n "$engine_lock" || skip "another run uses $storage (CONTAINER_STORAGE names another place)"
  engine_unmount
  rm -rf "$engine_run"
  mkdir -p "$engine_run/tmp/buildah-cache" "$storage/store"
  export BUILDAH_ISOLATION=chroot TMPDIR=$engine_run/tmp
  export DISABLE_HC_SYSTEMD=true CONTAINERS_CONF=$engine_run/containers.conf  # no systemd here: health checks by hand
  # Without CAP_SYS_RESOURCE limits cannot be raised, which is what podman would do.
  cat >"$CONTAINERS_CONF" <<'CONF'
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
CONF
  podman rm --all --force --time 1 >/dev/null 2>&1 || true  # of a run that was killed
}

engine_stop() {
  podman rm --all --force --time 1 >/dev/null 2>&1 || true
  podman umount --all >/dev/null 2>&1 || true
  engine_unmount
  rm -rf "$engine_run"
  if [ "${CONTAINER_KEEP:-0}" != 1 ]; then rm -rf "$storage"; fi
}

# The host's own package sources of Debian, one a line.
debian_sources() {
  apt-get indextargets 'Created-By: Packages' 'Origin: Debian' --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' | sort -u
}

# A base like debian:bookworm-slim, of packages from where this machine has its own.
make_base() {
  if podman image exists "$base_image"; then return 0; fi
  local sources proxy
  sources=$(debian_sources)
  [ -n "$sources" ] || skip "apt knows no package lists of Debian (apt-get update makes them)"
  proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
  printf '%s\n' "$sources" | mmdebstrap --variant=apt --mode=root --format=tar --quiet \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    bookworm "$engine_run/base.tar" - || return 1
  podman import --quiet "$engine_run/base.tar" "$base_image" >/dev/null
  rm -f "$engine_run/base.tar"
}

# The Dockerfile, built as it is. Its compiler cache is the one that the build of this tree on the host has filled:
# buildah keeps a cache mount by its id, in a folder of TMPDIR.
build_image() {
  local keep=()
  if [ "${CONTAINER_KEEP:-0}" = 1 ]; then keep=(--layers); fi
  if command -v ccache >/dev/null; then
    local cache
    cache=$(ccache --get-config cache_dir)
    mkdir -p "$cache"
    ln -sfn "$cache" "$TMPDIR/buildah-cache/weir-ccache"
  fi
  buildah build "${keep[@]}" --isolation chroot --pull-never --format docker --target cpu \
    --build-arg "BASE=$base_image" --tag "$image" "$1"
}
