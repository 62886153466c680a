#!/usr/bin/env bash
# Inside the image's build stage: gathers what the server and the client need to run, and nothing else, in a folder.
# usage: deploy/container/rootfs.sh [--without-libc] BUILD_FOLDER OUTPUT_FOLDER
#   --without-libc   for an image that has the C and C++ libraries: only the others, in usr/lib
set -euo pipefail

libc=1
if [ "$1" = --without-libc ]; then libc=0; shift; fi
build=$1
out=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
programs=("$build/server/weir-server" "$build/client/weir")
mkdir -p "$out"/usr/{bin,lib,share/doc}

install -m 755 -s "${programs[@]}" "$out/usr/bin"

# The loader and every library, by the names they are asked for. ldd prints "name => path (address)" or "/loader (address)".
mapfile -t libraries < <(ldd "${programs[@]}" | awk '$2 == "=>" { print $3 } $1 ~ /^\/lib.*ld-linux/ { print $1 }' | sort -u)
if ldd "${programs[@]}" | grep 'not found'; then exit 1; fi
packages=()
# package_of FILE: dpkg knows files by one of the two names that a merged /usr gives them.
package_of() { { dpkg -S "$1" || dpkg -S "/usr$1" || dpkg -S "${1#/usr}"; } 2>/dev/null | sed -n '1s/:.*//p'; }
for library in "${libraries[@]}"; do
  package=$(package_of "$(readlink -f "$library")")
  if [ -z "$package" ]; then echo "no package has $library" >&2; exit 1; fi
  case "$package" in
    libc6 | libstdc++6 | libgcc-s1) if [ "$libc" -eq 0 ]; then continue; fi ;;
  esac
  packages+=("$package")
  # The loader has no other place than the one that is written in the programs.
  if [[ $library == *ld-linux* ]]; then folder=$out$(dirname "$library"); else folder=$out/usr/lib; fi
  mkdir -p "$folder"
  cp -L "$library" "$folder"
done

# The licences: ours, of the libraries, of those compiled in from headers alone, and the texts that these refer to.
packages+=(libcli11-dev nlohmann-json3-dev)
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
for package in "${packages[@]}"; do
  mkdir -p "$out/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$out/usr/share/doc/$package/"
done
mkdir -p "$out"/usr/share/{doc/weir,common-licenses}
cp "$source"/{LICENSE,NOTICE} "$out/usr/share/doc/weir/"
grep -rohE '/usr/share/common-licenses/[A-Za-z]+(-[0-9.]*[0-9])?' "$out/usr/share/doc" | sort -u | while read -r text; do
  if [ -e "$text" ]; then cp -L "$text" "$out/usr/share/common-licenses/"; fi
done

# The models, without what only tests read.
for config in "$source"/model/zoo/*/config.json; do
  model=$(dirname "$config")
  mkdir -p "$out/zoo/$(basename "$model")"
  cp "$model"/*.json "$model"/*.safetensors "$out/zoo/$(basename "$model")/"
  rm -f "$out/zoo/$(basename "$model")/expected.json"
done
cp "$source/model/zoo/README.md" "$out/zoo/"

# Names for the ids that the image runs as; any other id serves as well.
if [ "$libc" -eq 1 ]; then
  mkdir -p "$out/etc"
  printf 'root:x:0:0::/:/none\nweir:x:10001:10001::/:/none\n' >"$out/etc/passwd"
  printf 'root:x:0:\nweir:x:10001:\n' >"$out/etc/group"
fi
chmod -R a+rX,go-w "$out"

cd "$out"
printf '%s\n' "what the image holds, in KiB:"
du -sk usr/bin/* usr/lib usr/share zoo | sort -rn
du -sk .
