#include "server/options.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "runtime/base/completion.h"
#include "runtime/base/error.h"
#include "runtime/base/option_value.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/system_error.h"
#include "runtime/base/unknown_argument.h"
#include "runtime/base/wrapped_help.h"
#include "runtime/device/device_name.h"
#include "runtime/ops/ragged_batch.h"
#include "server/access/api_keys.h"
#include "server/options_help.h"

namespace weir {
namespace {

// They are of the command line only.
constexpr std::string_view kPrintAndExit[] = {"--help", "--version", "--new-api-key", "--completion"};

// One pass over one source. Only options that the source names are written to `options`, so passes in
// rising order of rank give the precedence that CLI11's own file and environment support does not.
struct Pass {
  Options* options;
  std::string* config;
  CLI::App app{std::string(kSummary), "weir-server"};
  std::vector<std::string> models;
  std::vector<std::string> tokenizers;
  std::string new_api_key;
  std::string completion;  // the shell
};

template <class T>
T Take(const std::string& flag, absl::StatusOr<T> value) {
  if (!value.ok()) throw CLI::ValidationError(flag, std::string(value.status().message()));
  return *std::move(value);
}

CLI::Option* AddSize(Pass* pass, const std::string& flag, std::function<void(MemorySize)> set,
                     const std::string& help) {
  return pass->app
      .add_option_function<std::string>(
          flag, [flag, set](const std::string& text) { set(Take(flag, ParseMemorySize(text))); }, help)
      ->type_name("SIZE");
}

CLI::Option* AddDuration(
    Pass* pass, const std::string& flag, absl::Duration* out, const std::string& help,
    absl::StatusOr<absl::Duration> (*parse)(const std::string&) = ParsePositiveDuration) {
  return pass->app
      .add_option_function<std::string>(
          flag, [flag, out, parse](const std::string& text) { *out = Take(flag, parse(text)); }, help)
      ->type_name("TIME");
}

void AddModelOptions(Pass* pass) {
  Options* o = pass->options;
  CLI::App& app = pass->app;
  app.add_option("--model", pass->models,
                 "Model to serve: a folder with config.json, *.safetensors and tokenizer.json, served as "
                 "models/NAME (default: the folder's name). Repeat for more models.")
      ->type_name("[NAME=]FOLDER")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Models");
  app.add_option(
         "--tokenizer", pass->tokenizers,
         "Folder whose tokenizer.json a model takes: that of model NAME, or without a name every model whose "
         "folder has none. 'none' instead of a folder: token ids only, no text. Repeat for more.")
      ->type_name("[NAME=]FOLDER")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Models");
  app.add_option_function<std::string>(
         "--weight-dtype",
         [o](const std::string& text) {
           o->weight_dtype = text == "f32" ? DType::kF32 : text == "bf16" ? DType::kBF16 : DType::kI8;
         },
         "What the matrices of all models become when they are loaded: int8, with one scale for each output, "
         "for "
         "half the bytes of bf16 and nearly twice the speed of a single stream; bf16; or f32. Default: what "
         "the "
         "folder has.")
      ->check(OneOf({"f32", "bf16", "int8"}))
      ->type_name("TYPE")
      ->group("Models");
  app.add_option_function<std::string>(
         "--kv-dtype",
         [o](const std::string& text) {
           o->kv_dtype = text == "f32" ? DType::kF32 : text == "f16" ? DType::kF16 : DType::kBF16;
         },
         "Element type of paged caches: f32, f16 or bf16. Default: f32 for f32 weights, else f16.")
      ->check(OneOf({"f32", "f16", "bf16"}))
      ->type_name("TYPE")
      ->group("Models");
  app.add_option_function<std::string>(
         "--device", [o](const std::string& text) { o->device = Take("--device", ParseDeviceName(text)); },
         "Where models run: cpu or cuda:N. Default: cpu.")
      ->type_name("NAME")
      ->check(NotEmpty())
      ->group("Models");
  app.add_option("--threads", o->threads,
                 "Compute threads; 0 means the CPUs of the affinity mask and the cgroup quota. Default: 0.")
      ->transform(WholeNumber(0, 1024))
      ->type_name("N")
      ->group("Models");
}

void AddNetworkOptions(Pass* pass) {
  Options* o = pass->options;
  CLI::App& app = pass->app;
  const std::string group = "Network";
  app.add_option_function<std::string>(
         "--listen", [o](const std::string& text) { o->listen = Take("--listen", ParseListen(text)); },
         "Address: HOST:PORT, [IPV6]:PORT or unix:PATH. Port 0 takes any free one. Other than loopback "
         "addresses need TLS, or --insecure. Default: 127.0.0.1:7070.")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option_function<std::string>(
         "--metrics-listen",
         [o](const std::string& text) { o->metrics_listen = Take("--metrics-listen", ParseListen(text)); },
         "Show metrics and a live page over HTTP at this address; see METRICS below. Plaintext, without "
         "keys: "
         "other than loopback addresses need --insecure, with TLS too. Default: none.")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_flag(
         "--insecure", o->insecure,
         "Allow plaintext on addresses that other machines can reach: everything, keys included, can be "
         "read on the way. For a proxy in front, or for metrics.")
      ->group(group);
  app.add_option_function<std::string>(
         "--reflection", [o](const std::string& text) { o->reflection = text == "on"; },
         "gRPC server reflection, for grpcurl and the like: on or off. Default: on.")
      ->check(OneOf({"on", "off"}))
      ->type_name("on|off")
      ->group(group);
  AddSize(
      pass, "--max-message-size", [o](MemorySize size) { o->max_message_size = size; },
      "Largest request. Default: 8MiB.")
      ->group(group);
  AddSize(
      pass, "--max-prompt-size", [o](MemorySize size) { o->max_prompt_size = size; },
      "Longest text of one prompt. Default: 4MiB.")
      ->group(group);
  app.add_option("--frontend-threads", o->frontend_threads,
                 "Threads that validate and tokenize requests. Default: 2.")
      ->transform(WholeNumber(1, 64))
      ->type_name("N")
      ->group(group);
  AddDuration(pass, "--reader-stall", &o->reader_stall,
              "A client that does not read its stream for so long loses it. Default: 30s.")
      ->group(group);
}

void AddConnectionOptions(Pass* pass) {
  Options* o = pass->options;
  const std::string group = "Connections";
  AddSize(
      pass, "--max-metadata-size", [o](MemorySize size) { o->max_metadata_size = size; },
      "Largest metadata of one call. Default: 16KiB.")
      ->group(group);
  pass->app
      .add_option("--max-streams", o->max_streams,
                  "Calls at once on one connection; a client holds further ones back. Default: 1024.")
      ->transform(WholeNumber(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  AddDuration(pass, "--keepalive-time", &o->keepalive_time,
              "A connection that is silent for so long is pinged. Default: 60s.")
      ->group(group);
  AddDuration(pass, "--keepalive-timeout", &o->keepalive_timeout,
              "It is closed when no answer comes within this time. Default: 20s.")
      ->group(group);
  AddDuration(pass, "--min-ping-interval", &o->min_ping_interval,
              "Clients that ping more often than this are sent away. Default: 10s.")
      ->group(group);
  AddDuration(pass, "--max-connection-idle", &o->max_connection_idle,
              "A connection without calls for so long is closed. Default: 1h.")
      ->group(group);
  AddDuration(pass, "--max-connection-age", &o->max_connection_age,
              "A connection takes no new calls after this time, so that clients spread anew over servers. "
              "Default: none.")
      ->group(group);
  AddDuration(pass, "--max-connection-age-grace", &o->max_connection_age_grace,
              "Its running calls end when this time is over too. Default: none.")
      ->group(group);
}

void AddAccessOptions(Pass* pass) {
  Options* o = pass->options;
  CLI::App& app = pass->app;
  const std::string group = "Access";
  app.add_option(
         "--tls-cert", o->tls.cert,
         "Serve TLS with this certificate: PEM, the server's own first, then those between it and the "
         "root. Read again when it changes; open connections go on.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app.add_option("--tls-key", o->tls.key, "Its private key: PEM, without a passphrase.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app.add_option("--tls-client-ca", o->tls.client_ca,
                 "Ask clients for a certificate that one of these signed (mTLS): PEM.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app.add_option(
         "--api-keys", o->api_keys,
         "Ask every call but health checks for a key of this file; see KEYS below. Read again when it "
         "changes.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app.add_option(
         "--new-api-key", pass->new_api_key,
         "Make a key: its line for the file goes to standard output, the key itself, once, to standard "
         "error. Then exit.")
      ->type_name("NAME")
      ->configurable(false)
      ->group(group);
}

void AddCapacityOptions(Pass* pass) {
  Options* o = pass->options;
  CLI::App& app = pass->app;
  const std::string group = "Capacity";
  app.add_option("--slots", o->slots,
                 "Sequences per model that hold state at once: sessions, and calls without one. Fewer where "
                 "--state-memory does not hold so many. Default: 256.")
      ->transform(WholeNumber(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  AddSize(
      pass, "--state-memory", [o](MemorySize size) { o->state_memory = size; },
      "Memory for the fixed states of all models. Default: 25%.")
      ->group(group);
  AddSize(
      pass, "--kv-memory", [o](MemorySize size) { o->kv_memory = size; },
      "Memory for the paged caches of all models. Default: what the slots can use at full context, at most "
      "25%.")
      ->group(group);
  AddSize(
      pass, "--snapshot-memory", [o](MemorySize size) { o->snapshot_memory = size; },
      "Memory for snapshots of sessions, and for imported sessions until they are whole. Default: 10%.")
      ->group(group);
  app.add_option("--max-step-tokens", o->max_step_tokens,
                 "Tokens that one step computes, prompts and decoding together. More than a chunk of 64. "
                 "Default: 512.")
      ->transform(WholeNumber(kChunkTokens + 1, 1 << 16))
      ->type_name("N")
      ->group(group);
  app.add_option("--max-waiting", o->max_waiting,
                 "Turns per model that wait in line; one more is refused at once. Default: 64.")
      ->transform(WholeNumber(0, 1 << 20))
      ->type_name("N")
      ->group(group);
  AddDuration(pass, "--session-ttl", &o->session_ttl,
              "A session that is not used for so long ends, unless its creator chose another time. "
              "Default: 10m.")
      ->group(group);
  AddDuration(pass, "--max-session-ttl", &o->max_session_ttl,
              "The longest time that a client may choose; more is refused. At least --session-ttl. "
              "Default: 24h.")
      ->group(group);
}

std::unique_ptr<Pass> MakePass(Options* options, std::string* config) {
  auto pass = std::make_unique<Pass>();
  pass->options = options;
  pass->config = config;
  CLI::App& app = pass->app;
  AddModelOptions(pass.get());
  AddNetworkOptions(pass.get());
  AddConnectionOptions(pass.get());
  AddAccessOptions(pass.get());
  AddCapacityOptions(pass.get());
  const std::string group = "Process";
  app.add_option("--config", *config, "File with any of these options; see FILES below.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->configurable(false)
      ->group(group);
  AddDuration(pass.get(), "--drain-delay", &options->drain_delay,
              "After SIGTERM, new work is still taken for so long, while health says NOT_SERVING: time for a "
              "load balancer to look, and for sessions to be moved away. Default: 0s.",
              ParseDelay)
      ->group(group);
  AddDuration(pass.get(), "--drain-timeout", &options->drain_timeout,
              "After SIGTERM and the delay, running turns may go on for so long. Default: 30s.")
      ->group(group);
  app.add_option("--log-level", options->log_level, "trace, debug, info, warn or error. Default: info.")
      ->check(OneOf({"trace", "debug", "info", "warn", "error"}))
      ->type_name("LEVEL")
      ->group(group);
  app.add_option(
         "--log-format", options->log_format,
         "text, or json: one object a line. A turn that has ended is one line of level info. Default: text.")
      ->check(OneOf({"text", "json"}))
      ->type_name("text|json")
      ->group(group);
  app.add_flag("--log-prompts", options->log_prompts,
               "Log the text of prompts as well, 4 KiB of each at most. Without this the log has no text of "
               "clients.")
      ->group(group);
  app.add_option("--completion", pass->completion,
                 "Print the script that completes this command in a shell, bash, zsh or fish, and exit.")
      ->check(OneOf(kCompletionShells))
      ->type_name("SHELL")
      ->configurable(false)
      ->group(group);
  app.set_help_flag("--help,-h", "Print this text and exit.")->group(group);
  app.set_version_flag("--version", std::string("weir-server ") + WEIR_VERSION, "Print the version and exit.")
      ->group(group);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.footer(std::string(kHelpFooter));
  auto formatter = std::make_shared<WrappedHelp>();
  formatter->column_width(32);
  app.formatter(formatter);
  return pass;
}

absl::Status RunPass(Pass* pass, const std::string& where, const std::function<void(CLI::App*)>& parse) {
  const auto refuse = [&](const std::string& what) {
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_OPTION",
                     where + (where.empty() ? "" : ": ") + what);
  };
  try {
    parse(&pass->app);
  } catch (const CLI::ExtrasError&) {
    return refuse(UnknownArgument(pass->app, pass->app.remaining()) + "; see weir-server --help");
  } catch (const CLI::ParseError& error) {
    return refuse(ValueErrorText(pass->app, error));
  }
  if (!pass->tokenizers.empty()) pass->options->tokenizers.clear();
  for (const std::string& text : pass->tokenizers) {
    absl::StatusOr<TokenizerChoice> choice = ParseTokenizer(text);
    if (!choice.ok()) return refuse("--tokenizer: " + std::string(choice.status().message()));
    pass->options->tokenizers.push_back(*std::move(choice));
  }
  if (pass->models.empty()) return absl::OkStatus();
  // A source that names models replaces those of the sources below it.
  pass->options->models.clear();
  for (const std::string& text : pass->models) {
    absl::StatusOr<NamedFolder> model = ParseModel(text);
    if (!model.ok()) return refuse("--model: " + std::string(model.status().message()));
    pass->options->models.push_back(*std::move(model));
  }
  return absl::OkStatus();
}

void ParseArgs(CLI::App* app, std::vector<std::string> args) {
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  app->parse(std::move(args));
}

std::string VariableOf(const CLI::Option& option) {
  std::string name = "WEIR_" + option.get_lnames().at(0);
  std::replace(name.begin(), name.end(), '-', '_');
  std::transform(name.begin(), name.end(), name.begin(), ::toupper);
  return name;
}

// Kubernetes and Docker put the addresses of services into the environment; one named "weir" looks like ours.
bool IsServiceVariable(const std::string& name, const std::string& value) {
  static const std::regex kName(
      "WEIR_([A-Z0-9_]*_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|"
      "ADDR))?)");
  static const std::regex kPort("WEIR_([A-Z0-9_]*_)?PORT");
  static const std::regex kUrl("(tcp|udp|sctp)://.*");
  return std::regex_match(name, kName) || (std::regex_match(name, kPort) && std::regex_match(value, kUrl));
}

bool IsClientVariable(const std::string& name) {
  static const std::set<std::string> kNames = {"WEIR_SERVER", "WEIR_TLS",     "WEIR_CA",          "WEIR_CERT",
                                               "WEIR_KEY",    "WEIR_API_KEY", "WEIR_API_KEY_FILE"};
  return kNames.count(name) > 0;
}

// Throws for a key of the file that is no option. CLI11 refuses it too, but does not say what it is.
void CheckKeys(CLI::App* app, const std::string& text) {
  std::istringstream in(text);
  for (const CLI::ConfigItem& item : app->get_config_formatter()->from_config(in)) {
    if (!item.parents.empty())
      throw CLI::ConfigError(
          fmt::format("{} is in a section; options stand without one", Quoted(item.fullname())));
    const CLI::Option* option = app->get_option_no_throw("--" + item.name);
    if (option == nullptr) option = app->get_option_no_throw(item.name);
    if (option == nullptr)
      throw CLI::ConfigError(fmt::format("unknown option {}; see weir-server --help", Quoted(item.name)));
    if (!option->get_configurable())
      throw CLI::ConfigError(fmt::format("option {} cannot stand in a file", Quoted(item.name)));
  }
}

absl::Status ReadFile(const std::string& path, Options* options) {
  errno = 0;
  std::ifstream file(path);
  std::string text;
  char buffer[4096];
  while (file.read(buffer, sizeof(buffer)), file.gcount() > 0)
    text.append(buffer, static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad())
    return MakeError(
        absl::StatusCode::kInvalidArgument, "INVALID_OPTION",
        fmt::format("cannot read the configuration file {}: {}", Quoted(path), SystemErrorText(errno)));
  std::string unused;
  auto pass = MakePass(options, &unused);
  return RunPass(pass.get(), path, [&](CLI::App* app) {
    CheckKeys(app, text);
    std::istringstream in(text);
    app->parse_from_stream(in);
  });
}

std::vector<std::string> ArgsOfVariable(const std::string& flag, const std::string& value) {
  std::vector<std::string> args;
  if (flag != "--model" && flag != "--tokenizer") return {flag + "=" + value};
  for (const std::string& part : CLI::detail::split(value, ','))
    args.push_back(flag + "=" + CLI::detail::trim_copy(part));
  return args;
}

bool OfCommandLineOnly(const std::string& flag) {
  return std::find(std::begin(kPrintAndExit), std::end(kPrintAndExit), flag) != std::end(kPrintAndExit);
}

// A variable of that name that a container gets for others, or a slip: who reads this knows which.
std::string UnknownVariable(const CLI::App& app, const std::string& name) {
  std::string flag = "--" + name.substr(std::string_view("WEIR_").size());
  std::replace(flag.begin(), flag.end(), '_', '-');
  std::transform(flag.begin(), flag.end(), flag.begin(), ::tolower);
  std::string meant = ResemblingOption(flag, {&app});
  if (OfCommandLineOnly(meant)) meant.clear();
  return fmt::format(
      "environment variable {} is none of this program's{}; those that begin with WEIR_ are its options (see "
      "weir-server --help): give it no others",
      Quoted(name), meant.empty() ? "" : fmt::format(", but {} is", VariableOf(*app.get_option(meant))));
}

absl::Status ReadEnvironment(const Environment& environment, Options* options, std::string* config) {
  for (const auto& [name, value] : environment) {
    if (name.rfind("WEIR_", 0) != 0 || value.empty()) continue;
    if (IsClientVariable(name)) continue;
    auto pass = MakePass(options, config);
    std::string flag;
    for (const CLI::Option* option : pass->app.get_options())
      if (!option->get_lnames().empty() && VariableOf(*option) == name) flag = "--" + option->get_lnames()[0];
    if (flag.empty() || OfCommandLineOnly(flag)) {
      if (IsServiceVariable(name, value)) continue;
      return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_OPTION",
                       UnknownVariable(pass->app, name));
    }
    WEIR_RETURN_IF_ERROR(
        RunPass(pass.get(), "environment variable " + name,
                [&flag, &value = value](CLI::App* app) { ParseArgs(app, ArgsOfVariable(flag, value)); }));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const Options& options) {
  const auto refuse = [](const std::string& what) {
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_OPTION", what);
  };
  if (options.models.empty()) return refuse("no model to serve: give --model FOLDER");
  std::set<std::string> names;
  for (const NamedFolder& model : options.models)
    if (!names.insert(model.name).second)
      return refuse(fmt::format("two models are named {}; write --model NAME=FOLDER", Quoted(model.name)));
  std::set<std::string> chosen;
  for (const TokenizerChoice& choice : options.tokenizers) {
    if (!choice.model.empty() && !names.contains(choice.model))
      return refuse(fmt::format("--tokenizer names model {}, which is not served", Quoted(choice.model)));
    if (!chosen.insert(choice.model).second)
      return refuse(choice.model.empty()
                        ? "two --tokenizer without a model's name; write --tokenizer NAME=FOLDER"
                        : fmt::format("two --tokenizer for model {}", Quoted(choice.model)));
  }
  if (options.tls.cert.empty() != options.tls.key.empty())
    return refuse("--tls-cert and --tls-key go together");
  if (!options.tls.client_ca.empty() && !options.tls.enabled())
    return refuse("--tls-client-ca needs --tls-cert and --tls-key");
  if (!options.insecure && !options.tls.enabled() && !IsLoopback(options.listen))
    return refuse(
        fmt::format("--listen {} can be reached from other machines, which needs TLS: give --tls-cert and "
                    "--tls-key, listen on a loopback address, or say --insecure",
                    Quoted(options.listen)));
  if (!options.insecure && !options.metrics_listen.empty() && !IsLoopback(options.metrics_listen))
    return refuse(
        fmt::format("--metrics-listen {} can be reached from other machines, and whoever reaches it sees the "
                    "metrics: listen on a loopback address, or say --insecure",
                    Quoted(options.metrics_listen)));
  if (options.metrics_listen == options.listen && !options.listen.ends_with(":0"))
    return refuse(fmt::format("--listen and --metrics-listen are both {}; choose another address for the one",
                              Quoted(options.listen)));
  for (const MemorySize& size : {options.max_message_size, options.max_prompt_size})
    if (size.share > 0 || size.bytes > (int64_t{1} << 30))
      return refuse("--max-message-size and --max-prompt-size take bytes, at most 1GiB");
  if (options.session_ttl > options.max_session_ttl)
    return refuse(fmt::format(
        "--session-ttl, {}, is more than --max-session-ttl, {}; lower the one or raise the "
        "other",
        absl::FormatDuration(options.session_ttl), absl::FormatDuration(options.max_session_ttl)));
  const MemorySize& metadata = options.max_metadata_size;
  if (metadata.share > 0 || metadata.bytes < 1024 || metadata.bytes > (1 << 20))
    return refuse("--max-metadata-size takes bytes, from 1KiB to 1MiB");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args,
                                             const Environment& environment) {
  CommandLine line;
  // The command line goes first, for --help and the file's name, and last, to win.
  Options scratch;
  std::string config_flag, config;
  {
    auto pass = MakePass(&scratch, &config_flag);
    try {
      CLI::App* app = &pass->app;
      ParseArgs(app, args);
    } catch (const CLI::CallForHelp&) {
      line.show = pass->app.help();
      return line;
    } catch (const CLI::CallForVersion& version) {
      line.show = std::string(version.what()) + "\n";
      return line;
    } catch (const CLI::ParseError&) {
      // Told below, after the ranks under it.
    }
    if (pass->app.count("--new-api-key") > 0) {
      WEIR_ASSIGN_OR_RETURN(const NewApiKey made, MakeApiKey(pass->new_api_key));
      line.show = made.line + "\n";
      line.note = fmt::format("the key of {}, which is shown only now:\n{}\n", pass->new_api_key, made.key);
      return line;
    }
    if (!pass->completion.empty()) {
      line.show =
          CompletionScript(pass->app, pass->completion, "weir-server --completion " + pass->completion);
      return line;
    }
  }
  Options from_environment;
  WEIR_RETURN_IF_ERROR(ReadEnvironment(environment, &from_environment, &config));
  if (!config_flag.empty()) config = config_flag;
  if (!config.empty()) WEIR_RETURN_IF_ERROR(ReadFile(config, &line.options));
  WEIR_RETURN_IF_ERROR(ReadEnvironment(environment, &line.options, &config));
  auto pass = MakePass(&line.options, &config);
  WEIR_RETURN_IF_ERROR(RunPass(pass.get(), "", [&](CLI::App* app) { ParseArgs(app, args); }));
  WEIR_RETURN_IF_ERROR(CheckOptions(line.options));
  return line;
}

Environment ProcessEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos)
      environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace weir
