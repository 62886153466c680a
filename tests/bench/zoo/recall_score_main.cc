// weir_recall_score: see --help.
#include <algorithm>
#include <iostream>

#include "CLI/CLI.hpp"
#include "client/client.h"
#include "client/command/exit_status.h"
#include "client/command/grpc_log.h"
#include "runtime/base/option_value.h"
#include "runtime/base/unknown_argument.h"
#include "runtime/base/wrapped_help.h"
#include "tests/bench/zoo/recall_score.h"
#include "tests/bench/zoo/recall_score_problems.h"

namespace weir::recall {
namespace {

constexpr const char* kFooter =
    R"(A problem is N keys, each with its value behind it, then the same keys in random order, each with its value
behind it again. All ids go to the server in one Score call; the values behind the repeated keys count. A
value is right when it is the most likely of all ids. Its bits are -log2 of its probability: 0 for one that
is sure, 9 for who knows nothing but that it is one of 512. The problems are functions of --seed.

JSON
  {"pairs":[4,...],"queries":N,"seed":S,"models":[{"name":"recall-linear","mixer":"linear_attention",
  "parameters":N,"state_bytes":N or null,"kv_bytes_per_token":N or null,"right":{"4":0.98,...},
  "bits":{"4":0.1,...}}]} on one line.

EXIT STATUS
  0 ok; 1 the server answered with an error, or a model does not fit; 2 bad usage; 3 no server there

EXAMPLE
  weir-server --tokenizer none --model recall-linear=model/zoo/recall/linear
  weir_recall_score --model recall-linear
)";

struct CommandLine {
  std::string server = "127.0.0.1:7070";
  bool json = false;
  Options options;
};

void AddOptions(CLI::App* app, CommandLine* line) {
  app->add_option("--server", line->server, "Its address, else that of WEIR_SERVER. Default: 127.0.0.1:7070.")
      ->envname("WEIR_SERVER")
      ->type_name("ADDRESS")
      ->check(NotEmpty());
  app->add_option("-m,--model", line->options.models, "Models of the server, by name. May be given again.")
      ->type_name("NAME")
      ->required()
      ->check(NotEmpty());
  app->add_option("--pairs", line->options.pairs,
                  "How many, separated by commas. Default: 4,8,16,32,64,128,256.")
      ->type_name("N")
      ->delimiter(',')
      ->transform(WholeNumber(1, kMaxPairs));
  app->add_option("--queries", line->options.queries,
                  "At least so many of each number of pairs, in whole problems. Default: 4096.")
      ->type_name("N")
      ->transform(WholeNumber(1, 100'000'000));
  app->add_option("--seed", line->options.seed, "Other problems. Default: 1.")
      ->type_name("N")
      ->transform(WholeNumber(0, INT64_MAX));
  app->add_flag("--json", line->json, "One JSON object instead of a table.");
}

int Fail(const absl::Status& status) {
  std::cerr << "weir_recall_score: " << ErrorLine(status) << "\n";
  return ExitStatusOf(status);
}

int Main(int argc, char** argv) {
  SilenceGrpcLog();
  CommandLine line;
  CLI::App app("Measures associative recall of models that a Weir server holds.", "weir_recall_score");
  app.formatter(std::make_shared<WrappedHelp>());
  app.allow_extras();
  AddOptions(&app, &line);
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return Fail(UsageError(ValueErrorText(app, error) + "; see weir_recall_score --help"));
  }
  if (!app.remaining().empty())
    return Fail(UsageError(UnknownArgument(app, app.remaining()) + "; see weir_recall_score --help"));
  std::vector<int>& pairs = line.options.pairs;
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  const absl::StatusOr<WeirClient> client = WeirClient::Connect(line.server);
  if (!client.ok()) return Fail(client.status());
  const absl::StatusOr<std::vector<RecallOfModel>> models = Measure(*client, line.options, nullptr);
  if (!models.ok()) return Fail(models.status());
  std::cout << (line.json ? ToJson(line.options, *models) + "\n" : ToTable(line.options, *models))
            << std::flush;
  return std::cout ? kExitOk : Fail(absl::InternalError("the output could not be written"));
}

}  // namespace
}  // namespace weir::recall

int main(int argc, char** argv) { return weir::recall::Main(argc, argv); }
