// Options of weir-server: defaults < configuration file < environment < flags.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/tensor/dtype.h"
#include "server/access/tls_files.h"
#include "server/option_values.h"

namespace weir {

struct Options {
  std::vector<NamedFolder> models;
  std::vector<TokenizerChoice> tokenizers;
  std::string listen = "127.0.0.1:7070";
  std::string metrics_listen;  // empty: none
  bool insecure = false;
  bool reflection = true;
  MemorySize max_message_size = {.bytes = 8 << 20};
  MemorySize max_prompt_size = {.bytes = 4 << 20};
  MemorySize max_metadata_size = {.bytes = 16 << 10};
  int max_streams = 1024;
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  absl::Duration min_ping_interval = absl::Seconds(10);
  absl::Duration max_connection_idle = absl::Hours(1);
  absl::Duration max_connection_age = absl::InfiniteDuration();
  absl::Duration max_connection_age_grace = absl::InfiniteDuration();

  TlsPaths tls;
  std::string api_keys;  // path

  std::string device = "cpu";
  int threads = 0;           // 0: usable CPUs
  int frontend_threads = 2;  // validate and tokenize
  std::optional<DType> kv_dtype;
  std::optional<DType> weight_dtype;

  int slots = 256;
  MemorySize state_memory = {.share = 0.25};
  std::optional<MemorySize> kv_memory;
  MemorySize snapshot_memory = {.share = 0.1};
  int max_step_tokens = 512;
  int max_waiting = 64;
  absl::Duration session_ttl = absl::Minutes(10);
  absl::Duration max_session_ttl = absl::Hours(24);
  absl::Duration reader_stall = absl::Seconds(30);
  absl::Duration drain_delay = absl::ZeroDuration();
  absl::Duration drain_timeout = absl::Seconds(30);

  std::string log_level = "info";
  std::string log_format = "text";
  bool log_prompts = false;
};

struct CommandLine {
  Options options;
  // Text that was asked for instead of a server (--help, --version, --new-api-key), for standard output.
  std::optional<std::string> show;
  std::string note;  // after it, for standard error: the key, which is good only where its line arrived
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// `args`: without the program's name. `environment`: all variables; those that begin with WEIR_ are read,
// and an unknown one of them is an error, as is an unknown key in the file. INVALID_ARGUMENT names the place
// and what would be right there.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args,
                                             const Environment& environment);

// This process's.
Environment ProcessEnvironment();

}  // namespace weir
