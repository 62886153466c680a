// The flags of `weir generate` that become fields of the request.
#pragma once

#include "CLI/App.hpp"
#include "weir/v1/generation.pb.h"

namespace weir {

// `request` outlives the parser. Only what the user names is set, so that the model's defaults hold.
void AddSamplingOptions(CLI::App* app, v1::GenerateRequest* request);
void AddStopOptions(CLI::App* app, v1::GenerateRequest* request);
void AddOutputOptions(CLI::App* app, v1::GenerateRequest* request);

}  // namespace weir
