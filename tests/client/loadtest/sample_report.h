// A report of `weir loadtest` with all its parts (schema 1); its figures are made up.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>

namespace weir {

inline nlohmann::json SampleReport() {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/data/loadtest_report.json");
  return nlohmann::json::parse(file);
}

}  // namespace weir
