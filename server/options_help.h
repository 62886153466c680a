// The prose of `weir-server --help`.
#pragma once

#include <string_view>

namespace weir {

inline constexpr std::string_view kSummary =
    "weir-server: streams tokens from small decoders over gRPC (weir.v1). Models with linear attention or a "
    "state-space mixer keep a state of constant size per session; softmax models keep a paged cache.";

inline constexpr std::string_view kHelpFooter =
    R"(SIZE is bytes: 1000000, 512MiB, 2GiB (or M, G: the same), 500MB, or a share: 25%. That is of what the limit of the
container or the machine's memory leaves beside the program, the weights and a reserve for steps and calls (the log
says how much), and for --state-memory and --kv-memory on a GPU of all its memory. TIME is 500ms, 30s, 10m or 1h30m.

PRECEDENCE
  Defaults, then the file, then the environment, then flags: the later one wins. Models are taken from the
  last source that names any.

ENVIRONMENT
  Every option but those that print something and exit: WEIR_ and its name in capitals with _ for -, such as WEIR_LISTEN or
  WEIR_MAX_STEP_TOKENS. WEIR_MODEL and WEIR_TOKENIZER take several separated by commas, WEIR_INSECURE and
  WEIR_LOG_PROMPTS true or false.
  Other variables that begin with WEIR_ are errors, but for weir's own (WEIR_SERVER, WEIR_API_KEY, …) and the
  addresses that Kubernetes adds for services.

FILES
  --config names a file of lines "option = value" without the leading dashes; # begins a comment. Lists are
  written ["a=/models/a", "b=/models/b"]. Unknown options are errors.

KEYS
  --api-keys names a file with one key a line; # begins a comment:
    NAME sha256:HEX [sessions=N] [state-bytes=SIZE] [requests-per-second=N] [burst=N] [tokens=N]
  Only the hash of a key is kept. The name owns the sessions that the key makes, and nobody else learns of them.
  Several lines of one name are several keys of one owner, with the same limits. sessions and state-bytes (of
  sessions, snapshots and turns without one) are what the owner may hold at once, tokens what one request may have in
  prompt and output together.
    weir-server --new-api-key alice >> keys.txt     # shows the key at the terminal
  Clients send it as the metadata "authorization: Bearer KEY". Write a new file beside the old one and rename it.

SIGNALS
  SIGTERM, SIGINT  Health turns NOT_SERVING; after --drain-delay new work is refused with UNAVAILABLE, running
                   turns go on until --drain-timeout, and the server ends as soon as it is idle. A second one
                   ends it at once.

HEALTH
  grpc.health.v1.Health answers for "", weir.v1.Generation, weir.v1.Models, weir.v1.Sessions and
  weir.v1.Server: NOT_SERVING while models load and while the server drains. The port is open all the time.

METRICS
  --metrics-listen answers, over HTTP/1.1 and without a key:
    /metrics    counters and histograms for Prometheus, none of them about a single client
    /healthz    200 while health is SERVING, 503 while models load and while the server drains; /livez always 200
    /           a page that draws what happens now, from /live.json

KEEPALIVE
  Clients may ping every 10 seconds (--min-ping-interval), also without calls; those that ping more often are
  sent away (ENHANCE_YOUR_CALM). The server pings silent connections after 60 seconds (--keepalive-time).

EXIT STATUS
  0  ended by a signal, or printed what was asked for
  1  what was asked for could not be printed
  2  an option, or a file of keys or certificates, is wrong
  3  a model could not be loaded, or does not fit, or its device cannot be used
  4  the address could not be had
  5  no connection could be accepted any more, for want of descriptors (ulimit -n); what ran was finished
  6  the GPU failed: every turn was told so (INTERNAL, DEVICE_LOST), and what was on it is lost
  7  no memory, or no further thread, could be had (ulimit -v, ulimit -u, a container's limits)

EXAMPLES
  weir-server --model /models/tales
  weir-server --model lin=/models/tales-linear --model soft=/models/tales-softmax --slots 1000
  weir-server --model /models/tales --listen 0.0.0.0:7070 --tls-cert tls.crt --tls-key tls.key --api-keys keys.txt
  WEIR_MODEL=/models/tales weir-server --listen 0.0.0.0:7070 --insecure
)";

}  // namespace weir
