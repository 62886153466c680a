#!/usr/bin/env bash
# Builds the static programs for a machine that has a GPU, NVIDIA's driver and nothing of ours, on one that has NVIDIA's
# toolkit, and checks that they need no more. Takes some minutes on a few cores. The folder is printed at the end.
set -euo pipefail
cd "$(dirname "$0")/../../.."

usage() {
  cat <<USAGE
usage: tests/bench/gpu/build.sh [--architectures "80;90"]

--architectures: compute capabilities to compile kernels for; 80, 90, 100 and 120 without it.
USAGE
}
options=()
while [ $# -gt 0 ]; do
  case "$1" in
    --architectures) options+=("-DWEIR_CUDA_ARCHITECTURES=${2:?--architectures needs a list}"); shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

# shellcheck source=deploy/packages.sh
. deploy/packages.sh
weir_install "${weir_packages[@]}" "${weir_test_packages[@]}"
cmake --preset gpu-bench "${options[@]}" >/dev/null
cmake --build --preset gpu-bench --target weir-gpu-bench weir-gpu-test

folder=build/gpu-bench/gpu
most=$((64 << 20))
total=0
for program in weir-gpu-bench weir-gpu-test; do
  file=$folder/$program
  bytes=$(stat -c %s "$file")
  total=$((total + bytes))
  # What every Linux has that can have the driver: the C library.
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  for library in $needed; do
    case "$library" in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
      *) echo "$file needs $library, which the other machine may not have" >&2; exit 1 ;;
    esac
  done
  libc=$(readelf -V "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
  printf '%s: %d KiB; needs %s (%s)\n' "$file" $((bytes >> 10)) "$(echo "$needed" | tr '\n' ' ')" "$libc"
done
if [ "$total" -gt "$most" ]; then
  echo "together $((total >> 20)) MiB, and at most 64 are meant to be carried" >&2
  exit 1
fi
printf 'together %d KiB. On the machine with the GPU, in a checkout with %s: tests/bench/gpu/run.sh\n' \
  $((total >> 10)) "$folder"
