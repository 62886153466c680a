# The Debian 12 packages that building and testing need. Sourced, not run.
# shellcheck shell=bash

weir_packages=(
  g++ cmake ninja-build pkg-config
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev libssl-dev
  libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev
  libpcre2-dev libutf8proc-dev libhwy-dev prometheus-cpp-dev
)
weir_test_packages=(libgtest-dev libgmock-dev libbenchmark-dev ccache fish zsh)  # the shells: for completion
# For tests/container, which builds and runs the image without a Docker engine.
weir_container_packages=(buildah podman runc catatonit mmdebstrap)
# For tests of deploy/proxy, which are skipped without. Not among the others: where systemd runs, Debian starts the
# proxies as services when it installs them.
weir_proxy_packages=(nginx-light haproxy dnsmasq-base)

# weir_install package…: installs those that are missing; as root, or with sudo.
weir_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if [ "${#missing[@]}" -eq 0 ]; then return 0; fi
  echo "installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "these packages are missing and need root: ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}
