// The report for programs.
#pragma once

#include <optional>

#include "client/loadtest/distribution.h"
#include "client/loadtest/report.h"
#include "nlohmann/json.hpp"

namespace weir {

// Schema 1 (client/README.md). Fields are always there; null where there is no such figure.
nlohmann::ordered_json ReportJson(const Report& report);

// Null where there is no value.
template <class T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json DistributionJson(const Distribution& distribution);

}  // namespace weir
