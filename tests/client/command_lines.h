// What goes into a command of `weir`, and what comes out of it.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/scripted_server.h"

namespace weir {

// For a command to that server.
inline std::vector<std::string> At(const ScriptedServer& server, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--server", server.address()});
  return arguments;
}

// Each line an object.
inline std::vector<nlohmann::json> JsonLines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

}  // namespace weir
