#!/usr/bin/env bash
# Mutation of the CUDA column: each entry of mutations.txt changes one place of a kernel in a copy, which is compiled for
# the emulated device and linked with the tests; a test must fail. Not part of tests/run.sh: it takes about an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<USAGE
usage: tests/cuda/mutate.sh [--build FOLDER] [--only TEXT] [--list FILE] [--limit SECONDS]

--build: a configured build without sanitizers, build/dev without it. --only: entries whose name holds the text.
--limit: of one run of the tests, 900 without it; a mutant that takes longer has no verdict.
Prints a line for each: killed, killed (checker), survived or no verdict. Ends with 1 if one had none, or survived although
mutations.txt does not say that it may, or the other way round.
USAGE
}
build=build/dev
only=
list=tests/cuda/mutations.txt
limit=900
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --only) only=${2:?--only needs a text}; shift 2 ;;
    --list) list=${2:?--list needs a file}; shift 2 ;;
    --limit) limit=${2:?--limit needs a number}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
killed=0
survived=0

# The command that makes a file of the build, from there.
command_of() { ninja -C "$build" -t commands "$1" | tail -1; }

# compile_mutant source object: as the build compiles it, with the mutated tree before the real one.
compile_mutant() {
  local object=$2 command source=$root/$1
  if [ -e "$scratch/tree/$1" ]; then source=$scratch/tree/$1; fi
  command=$(command_of "$object")
  command=${command/ -c $root\/$1/ -c $source}
  command=${command/ -o $object/ -o $scratch\/$(basename "$object")}
  command=${command/ -MF $object.d/ -MF $scratch\/depend}
  command=${command/ -I/ -I$scratch\/tree -I}
  # A mutant may leave a variable unused.
  (cd "$build" && eval "${command/ -Werror/ -Wno-error}") >"$scratch/log" 2>&1
}

# run_mutant program kernels filter: links the program with the mutated objects and runs it. Sets `verdict`.
run_mutant() {
  local program=$1 kernels=$2 filter=$3 command source object
  command=$(command_of "$program")
  for source in $sources; do
    object=tests/cuda/CMakeFiles/$kernels.dir/__/__/$source.o
    if ! compile_mutant "$source" "$object"; then
      echo "does not compile:" >&2
      grep -m3 error "$scratch/log" >&2 || tail -3 "$scratch/log" >&2
      exit 2
    fi
    local linked=${command/ $object/ $scratch\/$(basename "$object")}
    # As CMake writes objects of an object library.
    linked=${linked/ ${object/.dir\//.dir/./}/ $scratch\/$(basename "$object")}
    if [ "$linked" = "$command" ]; then echo "$program links no $object" >&2; exit 2; fi
    command=$linked
  done
  local output
  output=$(sed -n 's/.* -o \([^ ]*\) .*/\1/p' <<<"$command")
  command=${command/ -o $output/ -o $scratch\/mutant}
  (cd "$build" && eval "$command") >"$scratch/log" 2>&1 || { tail -3 "$scratch/log" >&2; exit 2; }
  local status=0
  timeout "$limit" "$scratch/mutant" --gtest_brief=1 --gtest_fail_fast --gtest_filter="$filter" \
    >"$scratch/test.log" 2>&1 || status=$?
  if ! grep -q '^\[==========\]' "$scratch/test.log" && [ "$status" -eq 0 ]; then
    echo "the filter '$filter' names no test" >&2
    exit 2
  fi
  case "$status" in
    0) verdict=survived ;;
    124) verdict='no verdict' ;;
    *) verdict=killed ;;
  esac
}

program=weir_ops_column
name=
finish() {
  if [ -z "$name" ]; then return; fi
  local content rest before
  content=$(cat "$file")
  before=${content%%"$from"*}
  rest=${content#*"$from"}
  if [ "$before" = "$content" ] || [[ $rest == *"$from"* ]]; then
    echo "mutations.txt, '$name': its text is not exactly once in $file" >&2
    exit 2
  fi
  case "$name" in *"$only"*) ;; *) return ;; esac
  rm -rf "$scratch/tree"
  mkdir -p "$scratch/tree/$(dirname "$file")"
  printf '%s\n' "$before$to$rest" >"$scratch/tree/$file"
  # A header is in every kernel that includes it.
  sources=$file
  case "$file" in
    *.cuh) sources=$(grep -rlF "#include \"$file\"" --include='*.cu' runtime/ops) ;;
  esac
  local kind result
  case "$program" in
    *sample*) kind=weir_sample_column ;;
    *) kind=weir_ops_column ;;
  esac
  run_mutant "tests/cuda/${kind}_emulated" weir_column_kernels "$tests"
  result=$verdict
  if [ "$result" = survived ] && [ -n "$checker" ]; then
    run_mutant "tests/cuda/${kind}_checked" weir_column_kernels_checked "$tests"
    result=$verdict
    if [ "$result" = killed ]; then result='killed (checker)'; fi
  fi
  case "$result" in
    survived) survived=$((survived + 1)) ;;
    killed*) killed=$((killed + 1)) ;;
  esac
  local note=
  case "$result:$because" in
    survived:?* | killed*:) ;;
    *) note=' UNEXPECTED' failed=1 ;;
  esac
  local by=$because
  if [ "$result" != survived ]; then
    by=$(sed -n -e 's/^\[  FAILED  \] \([^ ,]*\).*/\1/p' "$scratch/test.log" | head -1)
    if [ -z "$by" ]; then by=$(grep -m1 -oE 'the CUDA emulator reports \([a-z ]*\)|check failed: .*' "$scratch/test.log" || echo "a signal, or the limit"); fi
  fi
  # shellcheck disable=SC2016
  printf '| %s | `%s` | %s%s | %s |\n' "$name" "${file##*/}" "$result" "$note" "$by"
}

cmake --build "$build" --target weir_ops_column_emulated weir_ops_column_checked weir_sample_column_emulated \
  weir_sample_column_checked >"$scratch/log" || { tail -5 "$scratch/log" >&2; exit 2; }
while IFS= read -r line || [ -n "$line" ]; do
  case "$line" in
    '#'*) ;;
    '@ '*) finish; name=${line#@ } file='' tests='*' from='' to='' because='' checker='' program=weir_ops_column ;;
    'in '*) file=${line#in } ;;
    'by '*)
      tests=${line#by }
      case "$tests" in 'sample '*) program=weir_sample_column tests=${tests#sample } ;; esac
      ;;
    '- '*) from=$from${from:+$'\n'}${line#- } ;;
    '+ '*) to=$to${to:+$'\n'}${line#+ } ;;
    checker) checker=yes ;;
    'survives: '*) because=${line#survives: } ;;
    '') ;;
    *) echo "mutations.txt: cannot read '$line'" >&2; exit 2 ;;
  esac
done <"$list"
finish
echo "$killed killed, $survived survived"
exit "$failed"
