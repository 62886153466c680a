#include "client/loadtest/report_html.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/check.h"

namespace weir {

extern const std::string_view kReportPage;  // web/report.html with its parts

namespace {

constexpr std::string_view kPlaceholder = "@REPORT@";

// JSON in which nothing can end or open an HTML element or comment: `<` occurs in strings only, where it may
// be written as an escape.
std::string JsonForHtml(const nlohmann::ordered_json& report) {
  std::string escaped;
  for (const char byte : report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) {
    if (byte == '<')
      escaped += "\\u003c";
    else
      escaped += byte;
  }
  return escaped;
}

}  // namespace

std::string RenderHtmlReport(const nlohmann::ordered_json& report) {
  const size_t at = kReportPage.find(kPlaceholder);
  WEIR_CHECK(at != std::string_view::npos);
  std::string page(kReportPage.substr(0, at));
  page += JsonForHtml(report);
  page += kReportPage.substr(at + kPlaceholder.size());
  return page;
}

}  // namespace weir
