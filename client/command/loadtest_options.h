// The options of `weir loadtest`.
#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "client/command/number_option.h"
#include "client/loadtest/run.h"

namespace weir {

// Filled by the parser; belongs to the subcommand.
struct LoadtestCommandOptions {
  LoadtestOptions run;
  int connections = 4;
  absl::Duration session_ttl;  // zero: the server's default
  std::string prompts_file;
  std::string json_file;  // "-": standard output; here and below
  std::string csv_file;
  std::string html_file;
  bool quiet = false;
  bool weight_given = false;  // of any model

  CLI::Option* concurrency_given = nullptr;
  CLI::Option* rate_given = nullptr;
  CLI::Option* arrivals_given = nullptr;
  CLI::Option* duration_given = nullptr;
  CLI::Option* requests_given = nullptr;
  CLI::Option* prompt_tokens_given = nullptr;
  CLI::Option* think_given = nullptr;
  CLI::Option* session_ttl_given = nullptr;
  CLI::Option* drain_given = nullptr;
  // Those that nothing but traffic looks at, and that do not ask for it.
  std::vector<CLI::Option*> of_traffic;
  std::vector<CLI::Option*> growth_given;  // but for --positions
};

void AddLoadtestOptions(CLI::App* app, LoadtestCommandOptions* options);

// Parts between commas; an option whose value is a list of numbers.
std::vector<std::string> SplitAtCommas(const std::string& text);
template <class T>
CLI::Option* AddNumberList(CLI::App* app, const std::string& name, const char* type, NumberRange<T> range,
                           std::vector<T>* out, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, range, out](const std::string& text) {
            out->clear();
            for (const std::string& part : SplitAtCommas(text))
              out->push_back(ParseNumber<T>(name, part, range));
          },
          help)
      ->type_name(type);
}

// After parsing: what does not go together is a UsageError, defaults that depend on other options are set,
// and the file of prompts is read.
absl::Status CompleteLoadtestOptions(LoadtestCommandOptions* options);

}  // namespace weir
