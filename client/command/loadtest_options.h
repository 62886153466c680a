// The options of `weir loadtest`.
#pragma once

#include <string>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "client/loadtest/run.h"

namespace weir {

// Filled by the parser; belongs to the subcommand.
struct LoadtestCommandOptions {
  LoadtestOptions run;
  int connections = 4;
  std::string prompts_file;
  std::string json_file;  // "-": standard output
  std::string csv_file;
  std::string html_file;
  bool quiet = false;

  CLI::Option* concurrency_given = nullptr;
  CLI::Option* rate_given = nullptr;
  CLI::Option* arrivals_given = nullptr;
  CLI::Option* duration_given = nullptr;
  CLI::Option* requests_given = nullptr;
  CLI::Option* prompt_tokens_given = nullptr;
  CLI::Option* think_given = nullptr;
};

void AddLoadtestOptions(CLI::App* app, LoadtestCommandOptions* options);

// After parsing: what does not go together is a UsageError, defaults that depend on other options are set,
// and the file of prompts is read.
absl::Status CompleteLoadtestOptions(LoadtestCommandOptions* options);

}  // namespace weir
