// weir_text_score: see --help.
#include <iostream>

#include "CLI/CLI.hpp"
#include "client/client.h"
#include "client/command/exit_status.h"
#include "client/command/grpc_log.h"
#include "model/config/input_file.h"
#include "runtime/base/option_value.h"
#include "runtime/base/unknown_argument.h"
#include "runtime/base/wrapped_help.h"
#include "tests/bench/zoo/text_score.h"

namespace weir::zoo {
namespace {

constexpr const char* kFooter =
    R"(A line that holds only <|endoftext|> parts texts; the model's end-of-sequence id stands there, and costs bits
but no bytes. Standard output gets one JSON object on one line.

EXIT STATUS
  0 ok; 1 the server answered with an error, or text and model do not fit; 2 bad usage; 3 no server there

EXAMPLE
  weir-server --model model/zoo/tales-linear
  weir_text_score --model tales-linear --reach 16384 held-out.txt
)";

int Fail(const absl::Status& status) {
  std::cerr << "weir_text_score: " << ErrorLine(status) << "\n";
  return ExitStatusOf(status);
}

int Main(int argc, char** argv) {
  SilenceGrpcLog();
  std::string server = "127.0.0.1:7070", path;
  Options options;
  CLI::App app("Measures bits per byte of text on models that a Weir server holds.", "weir_text_score");
  app.formatter(std::make_shared<WrappedHelp>());
  app.allow_extras();
  app.add_option("--server", server, "Its address, else that of WEIR_SERVER. Default: 127.0.0.1:7070.")
      ->envname("WEIR_SERVER")
      ->type_name("ADDRESS")
      ->check(NotEmpty());
  app.add_option("-m,--model", options.models, "Models of the server, by name. May be given again.")
      ->type_name("NAME")
      ->required()
      ->allow_extra_args(false)
      ->check(NotEmpty());
  app.add_option("--window", options.window, "Tokens that are read from an empty state. Default: 512.")
      ->type_name("N")
      ->transform(WholeNumber(1, 1 << 20));
  app.add_option("--windows", options.windows, "How many, spread over the text; 0: all. Default: 0.")
      ->type_name("N")
      ->transform(WholeNumber(0, 1 << 20));
  app.add_option("--reach", options.reach,
                 "Tokens of a stretch that is read in one go, for the figures by position; 0: no stretches. "
                 "Default: 32768.")
      ->type_name("N")
      ->transform(WholeNumber(0, 1 << 24));
  app.add_option("--stretches", options.stretches, "How many. Default: 4.")
      ->type_name("N")
      ->transform(WholeNumber(1, 1 << 20));
  app.add_option("TEXT", path, "File with the text.")->required();
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return Fail(UsageError(ValueErrorText(app, error) + "; see weir_text_score --help"));
  }
  if (!app.remaining().empty())
    return Fail(UsageError(UnknownArgument(app, app.remaining()) + "; see weir_text_score --help"));
  const absl::StatusOr<std::string> text = ReadTextFile(path, uint64_t{1} << 30);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<WeirClient> client = WeirClient::Connect(server);
  if (!client.ok()) return Fail(client.status());
  const absl::StatusOr<std::vector<Scored>> models = Measure(*client, options, *text);
  if (!models.ok()) return Fail(models.status());
  std::cout << ToJson(options, *models) << "\n" << std::flush;
  return std::cout ? kExitOk : Fail(absl::InternalError("the output could not be written"));
}

}  // namespace
}  // namespace weir::zoo

int main(int argc, char** argv) { return weir::zoo::Main(argc, argv); }
