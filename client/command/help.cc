#include "client/command/help.h"

namespace weir {
const std::string_view kSummary =
    "weir: streams text from a Weir server and looks after the sessions it keeps there.";

const std::string_view kFooter =
    R"(Global options may stand before or after the subcommand; `weir COMMAND --help` explains a command.
TIME is 30s, 1m30s, 500ms, or a plain number of seconds.
A server that does not greet within 5s, or --timeout where that is shorter, counts as out of reach: it may be
busy, or something else than a gRPC server.

JSON
  With --json every answer is one JSON object per line with the field names of the weir.v1 protos: 64-bit
  integers are numbers, bytes are base64. `generate` prints one object per event of the stream: prompt_info,
  delta ..., finish. `list` prints one object per item. Errors are one object {"error":{"code","reason",
  "message","metadata"}} on standard error.

SIGNALS
  SIGINT, SIGTERM  Cancels the call; what has arrived is printed. A session stays at its last token. A second
                   one ends the command at once.
  A reader that closes the pipe, such as head, ends the call quietly.

ENVIRONMENT
  WEIR_SERVER      The server's address, where --server does not name one.
  WEIR_API_KEY     The API key. Else --api-key-file; a key on the command line would show in the list of
                   processes.
  WEIR_TLS, WEIR_CA, WEIR_CERT, WEIR_KEY, WEIR_API_KEY_FILE
                   As the options of these names; WEIR_TLS is true or false.
  GRPC_VERBOSITY   debug, info or error: gRPC's own log lines on standard error. Unset: none.

EXIT STATUS
  0    ok
  1    the server answered with an error or refused the request for its size, the output could not be written,
       memory or threads ran out, or a load test did not pass
  2    bad usage: options, values that no model takes, an address that is none, a prompt that is not UTF-8, or
       a file that cannot be read
  3    the server cannot be reached or did not greet in time, TLS does not come about, or the connection broke
  4    a time limit passed
  5    refused for capacity: no session slot, no memory, or the waiting line is full
  130  interrupted (143 after SIGTERM)

EXAMPLES
  weir generate -m tales-linear "Once upon a time"
  weir --server gpu1:7070 --tls --api-key-file ~/.weir-key info
  weir --server gpu1:7070 generate -m tales-linear -n 100 -t 0.8 --seed 7 "The fox"
  weir generate --file story.txt --json | jq -j '.delta.text // empty'
  id=$(weir sessions create -m tales-linear) && weir generate -s "$id" "Tom had a dog."
  weir info --quiet || echo "not ready"
  weir loadtest -m tales-linear --concurrency 1,8,64 --duration 30s
)";

const std::string_view kGenerateFooter =
    R"(Text streams as it arrives, with a newline after the last. The prompt is sent byte for byte, so a file's last
newline is part of it. Without PROMPT, --file and --token-ids standard input is read when it is no terminal,
unless there is a --session, which then simply goes on.

EXAMPLES
  weir generate "Once upon a time"    # where the server has one model; else -m MODEL
  weir generate -n 50 --temperature 0 --stop "." "The capital of France is"
  printf 'Lily saw a' | weir generate -m tales-linear --stats
  weir generate -s abc " Then she" && weir generate -s abc
  weir generate --logit-bias 42=-100 --top-logprobs 3 "One, two,"
  weir generate -- "--help is a text too"
)";

const std::string_view kSessionsFooter = R"(EXAMPLES
  id=$(weir sessions create -m tales-linear --ttl 1h)
  weir sessions append "$id" --file rules.txt
  copy=$(weir sessions fork "$id") && weir generate -s "$copy" "First try:"
  point=$(weir sessions snapshot "$id") && weir generate -s "$id" "First try:"
  weir sessions rollback "$id" "$point" && weir generate -s "$id" "Second try:"
  weir sessions export "$id" talk.weir && weir --server other:7070 sessions import talk.weir
  weir sessions export "$id" - | gzip > talk.weir.gz
  weir sessions list --limit 20
  weir sessions list --json | jq -r .name | xargs weir sessions delete
)";

const std::string_view kScoreFooter =
    R"(The first token is context only; each other one is scored after all before it. A token's
rank is 1 where it is the one that temperature 0 would take, 2 where one other is more likely, and so on.

EXAMPLES
  weir score -m tales-linear "The cat sat on the mat."
  weir score --file test.txt --json | jq .perplexity
  weir score --file test.txt --json | jq '[.ranks[] == 1] | map(select(.)) | length'    # guessed right
)";

const std::string_view kInfoFooter =
    R"(Exits with 0 only when the server is SERVING: 1 while it loads models or drains, 3 when it cannot be reached
or does not greet in time, 4 when it greets and does not answer. In time is within --timeout, which is 5s here
unless given; for the greeting 5s at most.

EXAMPLES
  weir info
  weir info --json | jq '.server.models[] | {name: .model.name, slots_free}'
  HEALTHCHECK CMD ["weir", "info", "--quiet"]
)";

const std::string_view kModelsFooter = R"(EXAMPLES
  weir models
  weir models get tales-linear
  weir models list --json | jq -r .name
)";

const std::string_view kTokenizeFooter = R"help(EXAMPLES
  weir tokenize -m tales-linear "Once upon a time"
  weir tokenize --file story.txt --pieces
  weir generate --token-ids "$(weir tokenize 'Once upon a time' | tr ' ' ,)"
)help";

const std::string_view kDetokenizeFooter = R"(EXAMPLES
  weir detokenize -m tales-linear 311 15 7
  weir tokenize --file story.txt | weir detokenize
)";

const std::string_view kLoadtestFooter =
    R"(Latencies are counted from when a request was due, so that a server that stalls cannot hide it; TTFT ends
with the first message that carries a token, not with the first message. ITL is the gap between two
tokens: of several in one message the first has the whole gap, the others none. TPOT is (E2E - TTFT) /
(tokens - 1). A request is one turn. Those that are due within --warmup do not count; rates are of what
came between the warm-up's end and the end of --duration, when nothing new is started. Answers have
exactly the length that --output-tokens says: the end of the text is ignored. Synthetic prompts are token
ids drawn evenly, without those that end a text.

A request that is refused or fails is counted by its reason and not tried again; its user waits for as
long as the server advises, 100ms at least, before the next one. When the server is lost the test ends,
and Ctrl-C ends it too: what was measured is reported all the same. Exit status 1 also says that the test
did not pass: a --fail-on option that struck, or no request that was completed.

LENGTH is N, A-B (each as likely) or lognormal:MEDIAN,P99, in tokens.

EXAMPLES
  weir loadtest -m tales-linear --concurrency 8 --duration 30s          # closed loop: 8 users
  weir loadtest -m tales-linear --concurrency 1,8,64                    # a phase for each
  weir loadtest -m tales-linear --rate 20 --duration 60s                # open loop: Poisson arrivals
  weir loadtest -m tales-linear=3 -m tales-softmax=1 --concurrency 16   # mixed, three to one
  weir loadtest --compare linear,performer,mamba,mamba2,softmax         # each by itself, equal terms
  weir loadtest -m tales-linear --turns 4 --think 500ms                 # conversations in sessions
  weir loadtest -m tales-linear --prompt-tokens lognormal:100,800 --output-tokens 16-128 --seed 7
  weir loadtest -m tales-linear --limit-ttft 200ms --limit-tpot 20ms --fail-on-error --json run.json
)";

const std::string_view kCommandFooter =
    "\n`weir --help` explains the global options, TIME, JSON, SIGNALS, ENVIRONMENT and EXIT STATUS.\n";

const std::string_view kCompletionFooter =
    R"(Subcommands, options, files and choices complete, and the names of models and sessions too where the server
that the line names answers within a second.

INSTALLATION
  bash  echo 'source <(weir completion bash)' >> ~/.bashrc
  zsh   echo 'source <(weir completion zsh)' >> ~/.zshrc     # behind compinit
  fish  weir completion fish > ~/.config/fish/completions/weir.fish
)";

}  // namespace weir
