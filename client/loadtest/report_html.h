// The report of a load test as one HTML page that needs nothing else: no network, no other file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weir {

// `report`: the JSON that report_json writes (schema 1). Any part of it may be missing: the page leaves it
// out. Text in it may hold anything, bytes that are not UTF-8 included.
std::string RenderHtmlReport(const nlohmann::ordered_json& report);

}  // namespace weir
