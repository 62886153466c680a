# What is asked of the image and of what runs in it; each check_* is one group. Sourced by run.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154  # weir, image, engine_run: run.sh and engine.sh

passed=0
failed=0
step() { echo "[$SECONDS s] $*"; }
# t WHAT COMMAND…: the command holds. What it printed is shown when not.
t() {
  local what=$1 status=0
  shift
  "$@" >"$engine_run/t.log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    echo "  ok    $what"
    passed=$((passed + 1))
  else
    echo "  FAIL  $what (status $status)"
    sed 's/^/        /' "$engine_run/t.log" | tail -20
    failed=$((failed + 1))
  fi
}
is() { [ "$1" = "$2" ] || { echo "is '$1', not '$2'"; return 1; }; }
at_most() { [ "$1" -le "$2" ] || { echo "$1 is more than $2"; return 1; }; }
absent() { local file; for file in "$@"; do if [ -e "$file" ]; then echo "there is $file"; return 1; fi; done; }
# status_is N COMMAND…
status_is() {
  local wanted=$1 status=0
  shift
  "$@" || status=$?
  is "$status" "$wanted"
}
# says TEXT STATUS COMMAND…: it ends with that status, and names TEXT on standard error.
says() {
  local text=$1 wanted=$2 status=0 said
  shift 2
  said=$("$@" 2>&1 >/dev/null) || status=$?
  if is "$status" "$wanted" && [[ $said == *"$text"* ]]; then return 0; fi
  echo "said: $said"
  return 1
}
# The first number behind "KEY" in a line of JSON.
field() { printf '%s' "$1" | tr ',{}[]' '\n\n\n\n\n' | awk -F: -v key="\"$2\"" '$1 == key { gsub(/"/, "", $2); print $2; exit }'; }
inspect() { podman inspect "$1" --format "$2"; }
of_image() { podman image inspect "$image" --format "$1"; }

# --- a server in a container, as strangely as it may be run

name=weir-test-$$
sockets=$engine_run/sockets
# serve NAME PODMAN-OPTIONS… : any id, nothing to write to but the socket's folder, 1 MB of /dev/shm, no home.
serve() {
  local container=$1
  shift
  mkdir -p "$sockets"
  chmod 770 "$sockets"
  podman run --detach --name "$container" --network none --user 12345:0 --read-only --read-only-tmpfs=false \
    --shm-size 1m --cap-drop ALL --security-opt no-new-privileges --pids-limit 256 --unsetenv HOME \
    --volume "$sockets:/sockets" --env "WEIR_LISTEN=unix:/sockets/$container" \
    --env "WEIR_SERVER=unix:/sockets/$container" "$@" "$image" >/dev/null || return 1
  await "$container"
}
# Until the server is SERVING; fails as soon as it has ended, or after two minutes.
await() {
  export WEIR_SERVER=unix:$sockets/$1
  for _ in $(seq 1200); do
    if "$weir" info --quiet 2>/dev/null; then return 0; fi
    if [ "$(inspect "$1" '{{.State.Running}}')" != true ]; then break; fi
    sleep 0.1
  done
  podman logs "$1" 2>&1 | tail -20
  return 1
}
pid_of() { inspect "$1" '{{.State.Pid}}'; }
status_of() { awk -v key="$2:" '$1 == key { print $2 }' "/proc/$(pid_of "$1")/status"; }
# group_file CONTAINER CONTROLLER FILE: of the container's control group, v2 or v1.
group_file() {
  local pid path
  pid=$(pid_of "$1")
  path=$(awk -F: -v c="$2" '$2 == c || index("," $2 ",", "," c ",") { print $3; exit }' "/proc/$pid/cgroup")
  if [ -e "/sys/fs/cgroup/$2$path/$3" ]; then cat "/sys/fs/cgroup/$2$path/$3"; return; fi
  path=$(awk -F: '$1 == 0 { print $3 }' "/proc/$pid/cgroup")
  cat "/sys/fs/cgroup$path/$3"
}
kills_for_memory() {
  { group_file "$1" memory memory.oom_control || group_file "$1" memory memory.events; } 2>/dev/null |
    awk '$1 == "oom_kill" { print $2 }'
}
wait_for_text() {  # FILE: until it holds something
  for _ in $(seq 600); do if [ -s "$1" ]; then return 0; fi; sleep 0.1; done
  return 1
}

# --- the image as it lies there

check_image() {
  local root plain compressed package
  root=$(podman image mount "$image")
  plain=$(du -sm --apparent-size "$root" | cut -f1)
  compressed=$(($(tar -C "$root" -c . | gzip -6 | wc -c) / 1000000))
  echo "  $plain MB unpacked, $compressed MB compressed"
  t "at most 130 MB unpacked" at_most "$plain" 130
  t "at most 60 MB compressed" at_most "$compressed" 60
  t "no shell" absent "$root"/bin "$root"/usr/bin/*sh
  t "nothing but the two programs" is "$(cd "$root/usr/bin" && echo *)" "weir weir-server"
  t "nothing that others may write" is "$(find "$root" -perm /022 ! -type l | head -3)" ""
  t "nothing with more rights than who runs it" is "$(find "$root" -perm /6000 | head -3)" ""
  t "all models of the zoo" is "$(cd "$root/zoo" && echo */)" "$(cd model/zoo && dirname */config.json | sed 's|$|/|' | xargs)"
  for package in libc6 libstdc++6 libgrpc29 libssl3 libcli11-dev; do
    t "licence of $package" test -s "$root/usr/share/doc/$package/copyright"
  done
  t "our licence" cmp LICENSE "$root/usr/share/doc/weir/LICENSE"
  t "the text of Apache-2.0 that others refer to" test -s "$root/usr/share/common-licenses/Apache-2.0"
  podman image unmount "$image" >/dev/null
  t "its version is the server's" is "weir-server $(of_image '{{index .Labels "org.opencontainers.image.version"}}')" \
    "$(cat "$engine_run/version")"
  t "names its licences" grep -q 'Apache-2.0' <<<"$(of_image '{{index .Labels "org.opencontainers.image.licenses"}}')"
  t "runs as somebody else than root" is "$(of_image '{{.User}}')" 10001:10001
  t "is stopped by SIGTERM" is "$(of_image '{{.Config.StopSignal}}')" SIGTERM
}

# --- what it says of itself, and how a wrong start is answered

check_start() {
  t "without TLS or --insecure it does not open itself to others, and says why" \
    says "--insecure" 2 podman run --rm --network none "$image"
  t "a limit that leaves nothing is an error that names it" says "of 33554432 bytes of memory, program and weights take" 3 \
    podman run --rm --network none --memory 32m --memory-swap 32m "$image" --listen 127.0.0.1:0
  t "sizes that cannot all be full are refused" says "--state-memory" 3 podman run --rm --network none \
    --memory 256m --memory-swap 256m "$image" --listen 127.0.0.1:0 --slots 1000 --state-memory 400MiB
  t "a variable that is meant for others is refused by its name" says "'WEIR_DOMAIN' is none of this program's" 2 \
    podman run --rm --network none --env WEIR_DOMAIN=.invalid "$image" --listen 127.0.0.1:0
}

# What is mounted, and cannot be read from inside.
check_mounts() {
  local from=$engine_run/mounts
  mkdir -p "$from/closed" "$from/snapshot"
  ln -sf ../../blobs/1f "$from/snapshot/config.json"
  touch "$from/tls.key"
  chmod 755 "$from" "$from/snapshot"
  chmod 700 "$from/closed"
  chmod 600 "$from/tls.key"
  refused() {
    says "$1" "$2" podman run --rm --network none --volume "$from:/mnt:ro" "$image" --listen 127.0.0.1:0 "${@:3}"
  }
  t "a folder of somebody else is no abort, but says whose it is not" \
    refused "Permission denied; this process is user 10001 of group 10001" 3 --model /mnt/closed --tokenizer none
  t "nor may it read others' keys" \
    refused "'/mnt/tls.key': Permission denied; this process is user 10001" 2 --tls-cert /mnt/tls.key --tls-key /mnt/tls.key
  t "links that lead out of the mount are named" \
    refused "it is a link to '../../blobs/1f', which is not there" 3 --model /mnt/snapshot
}

# The way of deploy/container.md: a port of this machine, and its client.
check_port() {
  local server=$name-port address
  if ! podman run --detach --name "$server" --publish 127.0.0.1::7070 "$image" --insecure >"$engine_run/port.log" 2>&1; then
    echo "  ports cannot be published here: $(tail -1 "$engine_run/port.log")"
    return
  fi
  address=$(podman port "$server" 7070)
  for _ in $(seq 600); do if "$weir" --server "$address" info --quiet 2>/dev/null; then break; fi; sleep 0.1; done
  t "a tale through a published port" "$weir" --server "$address" generate -m tales-linear -n 4 "Once"
  podman kill --signal INT "$server" >/dev/null
  t "SIGINT ends it as SIGTERM does" is "$(podman wait "$server")" 0
}

check_confinement() {
  t "starts with any user, read-only, without capabilities, home or /tmp" serve "$name" \
    --memory 256m --memory-swap 256m --cpus 1
  t "health, from outside" "$weir" info --quiet
  t "HEALTHCHECK, by hand" podman healthcheck run "$name"
  t "user 12345" is "$(status_of "$name" Uid)" 12345
  t "no capability it could use" is "$(status_of "$name" CapEff)" 0000000000000000
  t "none it could get" is "$(status_of "$name" CapBnd)" 0000000000000000
  t "no new privileges" is "$(status_of "$name" NoNewPrivs)" 1
  t "a read-only root" is "$(awk '$5 == "/" { split($6, o, ","); print o[1] }' "/proc/$(pid_of "$name")/mountinfo")" ro
  t "nothing to write to but its socket" is "$(podman exec --user 0 "$name" /usr/bin/weir --version |
    grep -c '^weir ')$(ls -d "/proc/$(pid_of "$name")/root/tmp" 2>/dev/null)" 1
  t "one compute thread for a quota of one CPU" is "$(field "$("$weir" --json info)" compute_threads)" 1
}

check_stream() {
  local text
  t "a tale" bash -c '"$0" generate -m tales-linear -n 40 --seed 7 --temperature 0 "Once upon a time" >"$1"' "$weir" "$engine_run/tale"
  t "of some length" test "$(wc -c <"$engine_run/tale")" -gt 60
  t "the same from inside" bash -c 'cmp "$0" <(cat)' "$engine_run/tale" < <(podman exec "$name" /usr/bin/weir \
    generate -m tales-linear -n 40 --seed 7 --temperature 0 "Once upon a time")
  "$weir" sessions create -m tales-linear --id kept >/dev/null
  "$weir" sessions append kept "Tom had a dog." >/dev/null
  t "a session leaves by export, though nothing can be written" "$weir" sessions export kept "$engine_run/kept.weir"
  t "and comes back" "$weir" sessions import "$engine_run/kept.weir" --id again
  "$weir" sessions delete kept >/dev/null
  "$weir" sessions delete again >/dev/null
}

# fill MODEL: sessions until the server takes no more; prints how many.
fill() {
  local taken=0 status=0
  while "$weir" sessions create -m "$1" --id "$1-$taken" >/dev/null 2>"$engine_run/refusal"; do
    taken=$((taken + 1))
  done || status=$?
  echo "$taken"
}

# use_all MODEL SESSIONS PROMPT TOKENS: turns in all of them at once; the number of those that failed otherwise than by a
# refusal for capacity is the status.
use_all() {
  local turns=() wrong=0 i status
  for ((i = 0; i < $2; ++i)); do
    "$weir" generate -s "$1-$i" -n "$4" --ignore-eos "$3" >/dev/null 2>>"$engine_run/turns.log" &
    turns+=($!)
  done
  for i in "${turns[@]}"; do
    status=0
    wait "$i" || status=$?
    case "$status" in 0 | 5) ;; *) wrong=$((wrong + 1)) ;; esac
  done
  return "$wrong"
}

check_memory() {
  local small=$name-small limit=$((96 << 20)) taken paged pid long snapshots=0
  t "starts with 96 MiB" serve "$small" --memory "$limit" --memory-swap "$limit" --cpus 1 --env WEIR_DRAIN_TIMEOUT=10m
  podman logs "$small" 2>&1 | grep -E 'bytes of memory|slots of' | sed 's/^[^ ]* info /  /' || true
  pid=$(pid_of "$small")
  taken=$(fill tales-linear)
  t "takes sessions until its slots are full, $taken of them" is "$taken" "$(field "$("$weir" --json info)" slots_total)"
  t "refuses the next for capacity, with the reason" \
    says SESSION_CAPACITY_EXHAUSTED 5 "$weir" --json sessions create -m tales-linear
  paged=$(fill tales-softmax)
  t "and those of the paged model" test "$paged" -gt 0
  long=$(head -c 1500 model/zoo/README.md | tr -cd 'a-z \n')
  t "all of them generate at once" use_all tales-linear "$taken" "$long" 40
  t "caches grow until they are full" use_all tales-softmax "$paged" "$long" 100
  while "$weir" sessions snapshot tales-linear-0 >/dev/null 2>"$engine_run/refusal" && [ "$snapshots" -lt 1000 ]; do
    snapshots=$((snapshots + 1))
  done
  t "$snapshots snapshots, until their memory is full" grep -q 'snapshot' "$engine_run/refusal"
  t "then all generate again" use_all tales-linear "$taken" "$long" 40
  t "and nothing was killed for memory" is "$(kills_for_memory "$small")" 0
  t "nor started anew" is "$(pid_of "$small")" "$pid"
  t "still SERVING" "$weir" info --quiet
  echo "  at most $(group_file "$small" memory memory.max_usage_in_bytes 2>/dev/null ||
    group_file "$small" memory memory.peak 2>/dev/null || echo ?) of $limit bytes were in use, files included"
}

# --- how it ends; the small server's sessions and length of drain

check_drain() {
  local small=$name-small streams=() i stop finished=0
  for i in 0 1; do
    "$weir" generate -s "tales-linear-$i" -n 5000 --ignore-eos --stats "More." >"$engine_run/drain.$i" 2>"$engine_run/drain.$i.err" &
    streams+=($!)
  done
  for i in 0 1; do wait_for_text "$engine_run/drain.$i"; done
  podman stop --time 900 "$small" >/dev/null 2>&1 &
  stop=$!
  for _ in $(seq 2000); do if ! "$weir" info --quiet 2>/dev/null; then break; fi; done
  t "not ready as soon as it drains" says NOT_SERVING 1 "$weir" --json info --quiet
  t "new work is refused" says UNAVAILABLE 1 "$weir" --json generate -m tales-linear -n 4 "Once"
  for i in 0 1; do
    if wait "${streams[i]}" && grep -q '5000 tokens' "$engine_run/drain.$i.err"; then finished=$((finished + 1)); fi
  done
  t "open streams end with their last token" is "$finished" 2
  wait "$stop"
  t "then it has ended, with status 0" is "$(inspect "$small" '{{.State.ExitCode}}')" 0
}

check_death() {
  export WEIR_SERVER=unix:$sockets/$name
  "$weir" sessions create -m tales-linear --id short >/dev/null
  podman kill --signal KILL "$name" >/dev/null
  podman wait "$name" >/dev/null
  t "kill -9 is seen as such" is "$(inspect "$name" '{{.State.ExitCode}}')" 137
  t "and the server as gone, not as hanging" status_is 3 "$weir" info --quiet
  podman start "$name" >/dev/null
  t "starts again after kill -9, over its stale socket" await "$name"
  t "a session is gone, and says so" says NOT_FOUND 1 "$weir" --json sessions get short
  t "a call without one works" "$weir" generate -m tales-linear -n 4 "Once"
  podman stop --time 60 "$name" >/dev/null
  t "an idle server ends at once, with status 0" is "$(inspect "$name" '{{.State.ExitCode}}')" 0
}
