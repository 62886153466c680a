// Options and capacity: precedence, refusals, and how memory is shared out.
#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "server/access/api_keys.h"
#include "server/capacity.h"
#include "tests/support/fake_model.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Options MustParse(const std::vector<std::string>& args, const Environment& environment = {}) {
  auto line = ParseCommandLine(args, environment);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? line->options : Options();
}

std::string Refusal(const std::vector<std::string>& args, const Environment& environment = {}) {
  auto line = ParseCommandLine(args, environment);
  EXPECT_FALSE(line.ok());
  return std::string(line.status().message());
}

TEST(Options, TokenizersAreChosenByModel) {
  Options options =
      MustParse({"--model", "a=/m/a", "--model", "b=/m/b", "--tokenizer", "a=/t", "--tokenizer", "none"});
  ASSERT_EQ(options.tokenizers.size(), 2u);
  EXPECT_EQ(options.tokenizers[0].model, "a");
  EXPECT_EQ(options.tokenizers[0].folder, "/t");
  EXPECT_EQ(options.tokenizers[1].model, "");
  EXPECT_EQ(options.tokenizers[1].folder, "") << "token ids only";
  options = MustParse({"--model", "a=/m/a"}, {{"WEIR_TOKENIZER", "a=none,/t"}});
  ASSERT_EQ(options.tokenizers.size(), 2u);
  EXPECT_EQ(options.tokenizers[0].folder, "");
  EXPECT_EQ(options.tokenizers[1].folder, "/t");
  EXPECT_THAT(Refusal({"--model", "a=/m/a", "--tokenizer", "c=/t"}), HasSubstr("names model 'c'"));
  EXPECT_THAT(Refusal({"--model", "a=/m/a", "--tokenizer", "/t", "--tokenizer", "/u"}),
              HasSubstr("NAME=FOLDER"));
  EXPECT_THAT(Refusal({"--model", "a=/m/a", "--tokenizer", "a="}), HasSubstr("names no folder"));
}

TEST(Options, FlagsBeatEnvironmentBeatsFileBeatsDefaults) {
  testing::TempDir dir;
  const std::string file = dir.Write("weir.conf",
                                     "# a comment\n"
                                     "model = [\"file=/f\"]\n"
                                     "slots = 11\n"
                                     "max-waiting = 12\n"
                                     "max-step-tokens = 130\n"
                                     "reflection = \"off\"\n"
                                     "state-memory = \"1GiB\"\n");
  const Options options = MustParse(
      {"--config", file, "--slots", "31"},
      {{"WEIR_SLOTS", "21"}, {"WEIR_MAX_WAITING", "22"}, {"WEIR_DRAIN_TIMEOUT", "7s"}, {"HOME", "/root"}});
  EXPECT_EQ(options.slots, 31);
  EXPECT_EQ(options.max_waiting, 22);
  EXPECT_EQ(options.max_step_tokens, 130);
  EXPECT_FALSE(options.reflection);
  EXPECT_EQ(options.state_memory.bytes, int64_t{1} << 30);
  EXPECT_EQ(options.snapshot_memory.share, 0.1);
  EXPECT_EQ(options.drain_timeout, absl::Seconds(7));
  EXPECT_EQ(options.drain_delay, absl::ZeroDuration());
  EXPECT_EQ(options.listen, "127.0.0.1:7070");
  ASSERT_EQ(options.models.size(), 1u);
  EXPECT_EQ(options.models[0].folder, "/f");
  // The file may be named by the environment, and by a flag before that.
  EXPECT_EQ(MustParse({}, {{"WEIR_CONFIG", file}}).slots, 11);
  EXPECT_THAT(Refusal({"--config", "/nowhere"}, {{"WEIR_CONFIG", file}}), HasSubstr("/nowhere"));
}

TEST(Options, ModelsComeFromTheHighestSourceThatNamesAny) {
  const Environment environment = {{"WEIR_MODEL", "a=/e/a, /e/b/"}};
  const Options from_environment = MustParse({}, environment);
  ASSERT_EQ(from_environment.models.size(), 2u);
  EXPECT_EQ(from_environment.models[0].name, "a");
  EXPECT_EQ(from_environment.models[0].folder, "/e/a");
  EXPECT_EQ(from_environment.models[1].name, "b");
  const Options from_flags = MustParse({"--model", "x=/x=y", "--model=/models/z"}, environment);
  ASSERT_EQ(from_flags.models.size(), 2u);
  EXPECT_EQ(from_flags.models[0].folder, "/x=y");
  EXPECT_EQ(from_flags.models[1].name, "z");
}

TEST(Options, UnknownNamesAreErrorsEverywhere) {
  testing::TempDir dir;
  EXPECT_THAT(Refusal({"--model", "/m", "--slotz", "1"}), HasSubstr("slotz"));
  EXPECT_THAT(Refusal({"--model", "/m", "stray"}), HasSubstr("stray"));
  EXPECT_THAT(
      Refusal({"--model", "/m"}, {{"WEIR_MAX_WAITNG", "1"}}),
      HasSubstr("'WEIR_MAX_WAITNG' is none of this program's, but WEIR_MAX_WAITING is; those that begin"));
  for (const char* name : {"WEIR_HELP", "WEIR_DOMAIN", "WEIR_IMAGE", "WEIR_"})
    EXPECT_THAT(Refusal({"--model", "/m"}, {{name, "1"}}),
                HasSubstr(name + std::string("' is none of this program's; those that begin with WEIR_")));
  const std::string unknown = dir.Write("unknown.conf", "slotz = 1\n");
  EXPECT_EQ(Refusal({"--model", "/m", "--config", unknown}),
            unknown + ": unknown option 'slotz'; see weir-server --help");
  const std::string section = dir.Write("section.conf", "[network]\nslots = 1\n");
  EXPECT_THAT(Refusal({"--model", "/m", "--config", section}), HasSubstr("section.conf: 'network."));
  const std::string single = dir.Write("single.conf", "h = true\n");
  EXPECT_THAT(Refusal({"--model", "/m", "--config", single}), HasSubstr("unknown option 'h'"));
  const std::string nested = dir.Write("nested.conf", "config = \"/other\"\n");
  EXPECT_THAT(Refusal({"--model", "/m", "--config", nested}), HasSubstr("option 'config' cannot stand"));
  EXPECT_THAT(Refusal({"--model", "/m", "--config", dir.path()}), HasSubstr("Is a directory"));
}

TEST(Options, AddressesThatKubernetesAddsForServicesAreNotOurs) {
  const Options options = MustParse({"--model", "/m"}, {{"WEIR_SERVICE_HOST", "10.0.0.1"},
                                                        {"WEIR_SERVICE_PORT", "7070"},
                                                        {"WEIR_SERVICE_PORT_GRPC", "7070"},
                                                        {"WEIR_PORT", "tcp://10.0.0.1:7070"},
                                                        {"WEIR_PORT_7070_TCP_ADDR", "10.0.0.1"},
                                                        {"WEIR_CANARY_PORT", "tcp://10.0.0.2:7070"}});
  EXPECT_EQ(options.listen, "127.0.0.1:7070");
  EXPECT_THAT(Refusal({"--model", "/m"}, {{"WEIR_PORT", "7070"}}), HasSubstr("WEIR_PORT"));
}

TEST(Options, WrongValuesNameTheirSource) {
  testing::TempDir dir;
  EXPECT_THAT(Refusal({"--model", "/m", "--slots", "0"}), HasSubstr("--slots"));
  EXPECT_THAT(Refusal({"--model", "/m", "--kv-dtype", "f64"}), HasSubstr("--kv-dtype"));
  for (const char* const name : {"gpu", "CUDA:0", "cuda:", "cuda:-1", "cuda:x", "cuda:99999999999", "cpu:0"})
    EXPECT_EQ(Refusal({"--model", "/m", "--device", name}),
              "--device: unknown device '" + std::string(name) + "'; known: cpu, cuda:N");
  EXPECT_EQ(MustParse({"--model", "/m", "--device", "cuda:1"}).device, "cuda:1");
  EXPECT_EQ(Refusal({"--model", "/m", "--kv-dtype", "f64"}),
            "--kv-dtype: 'f64' is not one of f32, f16, bf16");
  EXPECT_EQ(Refusal({"--model", "/m", "--weight-dtype", "int4"}),
            "--weight-dtype: 'int4' is not one of f32, bf16, int8");
  EXPECT_EQ(MustParse({"--model", "/m", "--weight-dtype", "int8"}).weight_dtype, DType::kI8);
  EXPECT_EQ(MustParse({"--model", "/m"}, {{"WEIR_WEIGHT_DTYPE", "bf16"}}).weight_dtype, DType::kBF16);
  EXPECT_EQ(MustParse({"--model", "/m"}).weight_dtype, std::nullopt);
  EXPECT_THAT(Refusal({"--model", "/m", "--state-memory", "1 apple"}), HasSubstr("1 apple"));
  EXPECT_THAT(Refusal({"--model", "/m", "--drain-timeout=-3s"}), HasSubstr("-3s"));
  EXPECT_THAT(Refusal({"--model", "/m", "--drain-delay=-3s"}), HasSubstr("-3s"));
  EXPECT_EQ(MustParse({"--model", "/m", "--drain-delay", "0s"}, {{"WEIR_DRAIN_DELAY", "5s"}}).drain_delay,
            absl::ZeroDuration());
  EXPECT_EQ(MustParse({"--model", "/m"}, {{"WEIR_DRAIN_DELAY", "5s"}}).drain_delay, absl::Seconds(5));
  EXPECT_THAT(Refusal({"--model", "/m"}, {{"WEIR_THREADS", "many"}}), HasSubstr("WEIR_THREADS"));
  const std::string file = dir.Write("bad.conf", "slots = -1\n");
  EXPECT_THAT(Refusal({"--model", "/m", "--config", file}), HasSubstr("bad.conf"));
  EXPECT_THAT(Refusal({}), HasSubstr("--model"));
  EXPECT_THAT(Refusal({"--model", "a=/x", "--model", "a=/y"}), HasSubstr("two models"));
  EXPECT_THAT(Refusal({"--model", "/models/..."}), HasSubstr("no model name"));
  EXPECT_THAT(Refusal({"--model", "a="}), HasSubstr("names no folder"));
  // An empty variable is an unset one.
  EXPECT_EQ(MustParse({"--model", "/m"}, {{"WEIR_THREADS", ""}}).threads, 0);
}

TEST(Options, ANumberThatIsNoneIsRefusedInTheSameWordsFromEverySource) {
  testing::TempDir dir;
  const std::string said = "--slots: 'many' is not a whole number from 1 to 1048576";
  EXPECT_EQ(Refusal({"--model", "/m", "--slots", "many"}), said);
  EXPECT_EQ(Refusal({"--model", "/m"}, {{"WEIR_SLOTS", "many"}}), "environment variable WEIR_SLOTS: " + said);
  const std::string file = dir.Write("bad.conf", "slots = many\n");
  EXPECT_EQ(Refusal({"--model", "/m", "--config", file}), file + ": " + said);
  for (const char* text : {"0", "1048577", "-1", "1.5", "0x10", "", "99999999999999999999"})
    EXPECT_THAT(Refusal({"--model", "/m", "--slots", text}), HasSubstr("is not a whole number from 1"))
        << text;
  EXPECT_EQ(MustParse({"--model", "/m", "--slots", "010"}).slots, 10) << "not octal";
}

TEST(Options, ValuesThatGotLostAreNotUnsetOptions) {
  testing::TempDir dir;
  for (const char* name : {"tls-cert", "tls-key", "tls-client-ca", "api-keys", "config", "device"}) {
    const std::string flag = std::string("--") + name;
    EXPECT_THAT(Refusal({"--model", "/m", flag, ""}), HasSubstr(flag + ": '' is no value"));
    if (flag == "--config") continue;
    const std::string file = dir.Write("empty.conf", std::string(name) + " = \"\"\n");
    EXPECT_THAT(Refusal({"--model", "/m", "--config", file}), HasSubstr("'' is no value")) << name;
  }
  EXPECT_THAT(Refusal({"--new-api-key", ""}), HasSubstr("'' is no name for a key"));
  EXPECT_EQ(Refusal({"--model", "/m", "--slots="}),
            "--slots has no value; it takes a whole number from 1 to 1048576");
  EXPECT_EQ(Refusal({"--model", "/m", "--reflection="}), "--reflection has no value; it takes on, off");
  EXPECT_EQ(Refusal({"--model", "/m", "--api-keys="}), "--api-keys has no value; it takes FILE");
  EXPECT_EQ(Refusal({"--model", "/m"}, {{"WEIR_INSECURE", "maybe"}}),
            "environment variable WEIR_INSECURE: --insecure: 'maybe' is neither true nor false");
}

TEST(Options, OnlyLoopbackWithoutInsecure) {
  for (const char* listen :
       {"127.0.0.1:0", "127.8.0.1:7070", "localhost:7070", "[::1]:7070", "unix:/run/weir.sock"})
    EXPECT_EQ(MustParse({"--model", "/m", "--listen", listen}).listen, listen);
  for (const char* listen : {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "127.0.0.1.example.org:7070",
                             "127.1:7070", "localhost.example.org:1"}) {
    EXPECT_THAT(Refusal({"--model", "/m", "--listen", listen}), HasSubstr("--insecure")) << listen;
    EXPECT_EQ(MustParse({"--model", "/m", "--insecure", "--listen", listen}).listen, listen);
  }
  EXPECT_TRUE(MustParse({"--model", "/m"}, {{"WEIR_INSECURE", "true"}}).insecure);
  // TLS opens them too.
  const Options tls =
      MustParse({"--model", "/m", "--listen", "0.0.0.0:1", "--tls-cert", "/c", "--tls-key", "/k"});
  EXPECT_EQ(tls.tls.cert, "/c");
  EXPECT_EQ(tls.tls.key, "/k");
}

TEST(Options, MetricsAreForThisMachineUnlessInsecure) {
  EXPECT_EQ(MustParse({"--model", "/m"}).metrics_listen, "");
  for (const char* listen : {"127.0.0.1:9090", "localhost:0", "[::1]:9090", "unix:/run/metrics"})
    EXPECT_EQ(MustParse({"--model", "/m", "--metrics-listen", listen}).metrics_listen, listen);
  EXPECT_EQ(MustParse({"--model", "/m"}, {{"WEIR_METRICS_LISTEN", "[::1]:1"}}).metrics_listen, "[::1]:1");
  // They are plaintext, also where gRPC has TLS.
  const std::vector<std::string> open = {"--model",    "/m", "--metrics-listen", "0.0.0.0:9090",
                                         "--tls-cert", "/c", "--tls-key",        "/k"};
  EXPECT_THAT(Refusal(open), HasSubstr("--metrics-listen '0.0.0.0:9090' can be reached from other machines"));
  std::vector<std::string> insecure = open;
  insecure.push_back("--insecure");
  EXPECT_EQ(MustParse(insecure).metrics_listen, "0.0.0.0:9090");
  EXPECT_THAT(Refusal({"--model", "/m", "--metrics-listen", "127.0.0.1"}), HasSubstr("has no port"));
  EXPECT_THAT(Refusal({"--model", "/m", "--metrics-listen", "127.0.0.1:7070"}),
              HasSubstr("--listen and --metrics-listen are both"));
  EXPECT_EQ(MustParse({"--model", "/m", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}).listen,
            "127.0.0.1:0");
}

TEST(Options, TlsFilesGoTogether) {
  EXPECT_THAT(Refusal({"--model", "/m", "--tls-cert", "/c"}), HasSubstr("--tls-key"));
  EXPECT_THAT(Refusal({"--model", "/m", "--tls-key", "/k"}), HasSubstr("--tls-cert"));
  EXPECT_THAT(Refusal({"--model", "/m", "--tls-client-ca", "/a"}), HasSubstr("--tls-client-ca needs"));
}

TEST(Options, ConnectionLimits) {
  const Options options = MustParse({"--model", "/m", "--max-metadata-size", "32KiB", "--max-streams", "7",
                                     "--max-connection-age", "1h", "--min-ping-interval", "1s"});
  EXPECT_EQ(options.max_metadata_size.bytes, 32 << 10);
  EXPECT_EQ(options.max_streams, 7);
  EXPECT_EQ(options.max_connection_age, absl::Hours(1));
  EXPECT_EQ(options.min_ping_interval, absl::Seconds(1));
  EXPECT_THAT(Refusal({"--model", "/m", "--max-metadata-size", "10"}), HasSubstr("--max-metadata-size"));
}

TEST(Options, ANewKeyGoesToTwoPlaces) {
  const auto line = ParseCommandLine({"--new-api-key", "alice"}, {});
  ASSERT_TRUE(line.ok()) << line.status();
  const auto ring = KeyRing::Parse(*line->show);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const size_t at = line->note.find("weir_");
  ASSERT_NE(at, std::string::npos);
  const std::string key = line->note.substr(at, line->note.find('\n', at) - at);
  ASSERT_NE(ring->Find(key), nullptr);
  EXPECT_EQ(ring->Find(key)->name, "alice");
  EXPECT_EQ(line->show->find(key), std::string::npos);
  EXPECT_THAT(Refusal({"--new-api-key", "two words"}), HasSubstr("name"));
  EXPECT_THAT(Refusal({"--model", "/m"}, {{"WEIR_NEW_API_KEY", "x"}}), HasSubstr("WEIR_NEW_API_KEY"));
}

TEST(Options, TheClientsVariablesAreNotOurs) {
  MustParse({"--model", "/m"}, {{"WEIR_SERVER", "x"}, {"WEIR_API_KEY", "x"}, {"WEIR_TLS", "true"}});
}

// The table in server/README.md names each flag that bounds something, and none that does not exist.
TEST(Options, TheTableOfLimitsIsComplete) {
  std::ifstream file(WEIR_SOURCE_DIR "/server/README.md");
  std::string table;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("| ", 0) == 0) table += line + "\n";
  const std::string help = *ParseCommandLine({"--help"}, {})->show;
  const std::regex flag("--[a-z][a-z-]*");
  std::set<std::string> in_help, in_table;
  for (std::sregex_iterator it(help.begin(), help.end(), flag), end; it != end; ++it)
    in_help.insert(it->str());
  for (std::sregex_iterator it(table.begin(), table.end(), flag), end; it != end; ++it)
    in_table.insert(it->str());
  for (const std::string& name : in_table) EXPECT_EQ(in_help.count(name), 1u) << name;
  const std::regex bounds("--(max-.*|min-.*|slots|.*-memory|.*-timeout|.*-ttl|.*-stall|.*-time)");
  for (const std::string& name : in_help)
    if (std::regex_match(name, bounds)) EXPECT_EQ(in_table.count(name), 1u) << name;
}

TEST(Options, CompletionAndHelpComeFromTheOptionsThemselves) {
  const std::string help = *ParseCommandLine({"--help"}, {})->show;
  const std::string options = help.substr(0, help.find("SIZE is"));  // the table, without the prose
  const std::regex flag("\n  (?:-h,)?(--[a-z][a-z-]*)");
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = *ParseCommandLine({"--completion", shell}, {})->show;
    int count = 0;
    for (std::sregex_iterator it(options.begin(), options.end(), flag), end; it != end; ++it, ++count)
      EXPECT_THAT(script, HasSubstr((*it)[1].str())) << shell;
    EXPECT_GT(count, 35);
    EXPECT_THAT(script, HasSubstr("f32"));
  }
  EXPECT_FALSE(ParseCommandLine({"--completion", "tcsh"}, {}).ok());
  std::istringstream lines(options);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    EXPECT_EQ(line.find(":INT"), std::string::npos) << line;
  }
  EXPECT_THAT(options, HasSubstr("--slots N (1 to 1048576)"));
}

TEST(Options, AnUnknownOptionIsNamedWithTheOneThatWasMeant) {
  EXPECT_EQ(ParseCommandLine({"--model", "/m", "--slot", "8"}, {}).status().message(),
            "'--slot' is no option of weir-server, but --slots is; see weir-server --help");
  EXPECT_EQ(ParseCommandLine({"--model", "/m", "extra"}, {}).status().message(),
            "'extra' is one argument too many for weir-server; see weir-server --help");
}

TEST(Options, AddressesAreCheckedBeforeTheyAreListenedOn) {
  testing::TempDir dir;
  for (const std::string listen : {"foo", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:abc",
                                   "127.0.0.1:", ":7070", "", "::1:7070", "[::1]", "unix:"}) {
    const std::string file = dir.Write("listen.conf", "listen = \"" + listen + "\"\n");
    std::vector<std::string> refusals = {Refusal({"--model", "/m", "--listen", listen}),
                                         Refusal({"--model", "/m", "--insecure", "--listen", listen}),
                                         Refusal({"--model", "/m", "--config", file})};
    // An empty variable is an unset one.
    if (!listen.empty()) refusals.push_back(Refusal({"--model", "/m"}, {{"WEIR_LISTEN", listen}}));
    for (const std::string& refusal : refusals) {
      EXPECT_THAT(refusal, HasSubstr("--listen: '" + listen + "'"));
      EXPECT_THAT(refusal, HasSubstr("HOST:PORT"));
    }
  }
}

TEST(Options, TheDefaultTimeOfASessionFitsTheLongest) {
  EXPECT_EQ(MustParse({"--model", "/m", "--session-ttl", "2h", "--max-session-ttl", "2h"}).session_ttl,
            absl::Hours(2));
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--model", "/m", "--session-ttl", "25h"}, {"--model", "/m", "--max-session-ttl", "5m"}}) {
    EXPECT_THAT(Refusal(args), HasSubstr("--session-ttl, "));
    EXPECT_THAT(Refusal(args), HasSubstr("--max-session-ttl, "));
  }
}

TEST(Options, HelpAndVersionNeedNothingElse) {
  auto help = ParseCommandLine({"--help"}, {});
  ASSERT_TRUE(help.ok()) << help.status();
  for (const char* part : {"--model", "--listen", "--state-memory", "WEIR_MAX_STEP_TOKENS", "EXIT STATUS",
                           "SIGTERM", "10 seconds"})
    EXPECT_THAT(*help->show, HasSubstr(part));
  auto version = ParseCommandLine({"--version"}, {});
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(*version->show, "weir-server " WEIR_VERSION "\n");
}

TEST(OptionValues, MemorySizes) {
  EXPECT_EQ(ParseMemorySize("1000")->bytes, 1000);
  EXPECT_EQ(ParseMemorySize("2K")->bytes, 2048);
  EXPECT_EQ(ParseMemorySize("1.5GiB")->bytes, 1'610'612'736);
  EXPECT_EQ(ParseMemorySize("3MB")->bytes, 3'000'000);
  EXPECT_EQ(ParseMemorySize("25%")->Resolve(1000), 250);
  for (const char* text : {"", "G", "-1", "0", "1X", "101%", "1e400", "nan", "1 G"})
    EXPECT_FALSE(ParseMemorySize(text).ok()) << text;
}

// A softmax model, as far as memory is shared out.
class CachesOnly final : public LanguageModel {
 public:
  int32_t vocab_size() const override { return 64; }
  int64_t context_limit() const override { return 100; }
  std::vector<StateSpec> States() const override { return {}; }
  PagedSpec Paged() const override { return {1, 1, 8, DType::kF16}; }
  int prefill_granule() const override { return 1; }
  TokenCost token_cost() const override { return {}; }
  int64_t WorkspaceBytes(int, int, int64_t, int) const override { return 0; }
  void Forward(const StepInput&, const StepState&, TensorView, Workspace&, Stream&) const override {}
};

TEST(Capacity, SlotsAreCappedByTheStateMemory) {
  const testing::FakeModel model({});
  CapacityRequest request;
  request.slots = 100;
  request.state_memory = 1 << 20;
  auto plans = PlanCapacity(request, {&model});
  ASSERT_TRUE(plans.ok());
  const int64_t slot_bytes = plans->at(0).slot_bytes;
  EXPECT_EQ(plans->at(0).limits.slots, 100);
  EXPECT_EQ(plans->at(0).limits.kv_blocks, 0);
  request.state_memory = 3 * slot_bytes;
  EXPECT_EQ(PlanCapacity(request, {&model})->at(0).limits.slots, 3);
  // Two models share it.
  request.state_memory = 4 * slot_bytes;
  EXPECT_EQ(PlanCapacity(request, {&model, &model})->at(1).limits.slots, 2);
  // One that has no fixed state takes nothing of it away.
  const CachesOnly softmax;
  request.kv_memory_limit = 1 << 20;
  EXPECT_EQ(PlanCapacity(request, {&model, &softmax})->at(0).limits.slots, 4);
  request.state_memory = slot_bytes - 1;
  const absl::Status refused = PlanCapacity(request, {&model}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr(std::to_string(slot_bytes)));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--state-memory"));
}

TEST(Capacity, SessionsShareWhatProgramWeightsAndStepsLeave) {
  testing::FakeModelOptions paged;
  paged.paged = true;
  paged.context_limit = 100;
  const testing::FakeModel model(paged);
  constexpr int64_t kLimit = int64_t{256} << 20, kTaken = int64_t{60} << 20;
  CapacityRequest request;
  request.slots = 4;
  const HostMemory host = ShareHostMemory(kLimit, kTaken, request, {&model}, 2);
  EXPECT_EQ(host.limit, host.taken + host.reserve + host.free());
  EXPECT_GE(host.reserve, RequestLineBytes(kLimit));
  // More of it with every model, since each has its steps, and with longer ones.
  EXPECT_GT(ShareHostMemory(kLimit, kTaken, request, {&model, &model}, 2).reserve, host.reserve);
  CapacityRequest longer = request;
  longer.max_step_tokens = 4096;
  EXPECT_GE(ShareHostMemory(kLimit, kTaken, longer, {&model}, 2).reserve, host.reserve);
  const HostMemory full = ShareHostMemory(kLimit, 2 * kLimit, request, {&model}, 2);
  EXPECT_EQ(full.free(), 0);
  EXPECT_THAT(std::string(CheckAnyLeft(full).message()),
              AllOf(HasSubstr(std::to_string(kLimit)), HasSubstr("raise the limit of the container")));
  EXPECT_TRUE(CheckAnyLeft(host).ok());
  EXPECT_TRUE(CheckAnyLeft({}).ok()) << "a limit that nobody knows refuses nothing";

  request.state_memory = host.free() / 4;
  request.kv_memory_limit = host.free() / 4;
  const std::vector<CapacityPlan> plans = PlanCapacity(request, {&model}).value();
  const CapacityPlan& plan = plans.front();
  const int64_t rest =
      host.free() - plan.limits.slots * plan.slot_bytes - plan.limits.kv_blocks * plan.block_bytes;
  EXPECT_TRUE(CheckFits(host, plans, rest).ok());
  const std::string refusal(CheckFits(host, plans, rest + 1).message());
  for (const std::string& part :
       {std::to_string(kLimit), std::to_string(kTaken), std::to_string(host.free()), std::to_string(rest + 1),
        std::string("--state-memory"), std::string("--snapshot-memory")})
    EXPECT_THAT(refusal, HasSubstr(part));
  EXPECT_TRUE(CheckFits({}, plans, rest + 1).ok()) << "a limit that nobody knows refuses nothing";
}

TEST(Capacity, TheLineOfRequestsIsShortWhereThereIsLittleMemory) {
  EXPECT_EQ(RequestLineBytes(int64_t{64} << 30), int64_t{64} << 20);
  EXPECT_EQ(RequestLineBytes(int64_t{256} << 20), int64_t{16} << 20);
}

TEST(Capacity, BlocksAreWhatTheSlotsCanUseOrWhatWasAskedFor) {
  testing::FakeModelOptions paged;
  paged.paged = true;
  paged.context_limit = 100;
  const testing::FakeModel model(paged);
  CapacityRequest request;
  request.slots = 4;
  request.state_memory = 1 << 20;
  request.kv_memory_limit = int64_t{1} << 30;
  const auto plan = PlanCapacity(request, {&model})->at(0);
  const int64_t blocks_per_slot = (100 + kKvBlockTokens - 1) / kKvBlockTokens;
  EXPECT_EQ(plan.limits.kv_blocks, 4 * blocks_per_slot);
  request.kv_memory = 10 * plan.block_bytes;
  EXPECT_EQ(PlanCapacity(request, {&model})->at(0).limits.kv_blocks, 10);
  request.kv_memory = plan.block_bytes - 1;
  EXPECT_THAT(std::string(PlanCapacity(request, {&model}).status().message()), HasSubstr("--kv-memory"));
}

}  // namespace
}  // namespace weir
