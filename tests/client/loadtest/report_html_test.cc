// The load report as one page: what stands in it is the report, whatever the report says.
#include "client/loadtest/report_html.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/loadtest/sample_report.h"

namespace weir {

// What stands between the tags of the page's data.
std::string EmbeddedData(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"report\">";
  const size_t from = page.find(open);
  EXPECT_NE(from, std::string::npos);
  // As a browser reads it: to the first end tag.
  return page.substr(from + open.size(), page.find("</script", from) - from - open.size());
}

std::vector<size_t> Occurrences(const std::string& text, const std::string& what) {
  std::vector<size_t> found;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    found.push_back(at);
  return found;
}

TEST(ReportHtml, HoldsTheReportAsItIs) {
  const nlohmann::json report = SampleReport();
  ASSERT_EQ(report["models"].size(), 5u);
  EXPECT_EQ(nlohmann::json::parse(EmbeddedData(RenderHtmlReport(report))), report);
  EXPECT_EQ(nlohmann::json::parse(EmbeddedData(RenderHtmlReport(nlohmann::json::object()))),
            nlohmann::json::object());
}

// A script element that holds an opened comment and an opened script does not end at </script>: no `<` may
// stay.
TEST(ReportHtml, NamesAndMessagesCannotLeaveTheData) {
  nlohmann::json report = SampleReport();
  const size_t scripts = Occurrences(RenderHtmlReport(report), "<script").size();
  report["models"][0]["name"] = "</script><b>bold</b>";
  report["models"][1]["name"] = "<!--<script>";
  report["models"][2]["name"] = "@REPORT@ ]]> \" \\ \u2028";
  report["command"] = "weir loadtest -m '</ScRiPt ><img src=x onerror=alert(1)>'";
  report["failures"] = {"</script>", "a\nb"};
  const std::string page = RenderHtmlReport(report);
  EXPECT_EQ(nlohmann::json::parse(EmbeddedData(page)), report);
  EXPECT_EQ(EmbeddedData(page).find('<'), std::string::npos);
  EXPECT_EQ(Occurrences(page, "<script").size(), scripts);
}

TEST(ReportHtml, BytesThatAreNoUtf8AreReplaced) {
  const std::string page = RenderHtmlReport({{"models", {{{"name", "caf\xe9"}}}}});
  EXPECT_EQ(nlohmann::json::parse(EmbeddedData(page))["models"][0]["name"], "caf\xEF\xBF\xBD");
}

TEST(ReportHtml, AsksNobodyForAnything) {
  const std::string page = RenderHtmlReport(nlohmann::json::object());
  const std::string svg = "http://www.w3.org/2000/svg";  // the name of a language, never fetched
  for (const size_t at : Occurrences(page, "://")) EXPECT_EQ(page.substr(at - 4, svg.size()), svg);
  // Parts that the build has put in would still be named here.
  for (const char* reference : {"<link", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket"})
    EXPECT_EQ(Occurrences(page, reference).size(), 0u) << reference;
  EXPECT_EQ(Occurrences(page, "src=\"").size(), Occurrences(page, "src=\"data:image/svg+xml,%3Csvg").size());
  EXPECT_EQ(page.find("@REPORT@"), std::string::npos);
  EXPECT_EQ(Occurrences(page, "src=\"data:image/svg+xml,%3Csvg").size(), 1u) << "the zoo's figure";
  EXPECT_NE(page.find("Content-Security-Policy\" content=\"default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("const drawChart"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
}

// What comes from outside is never read as markup.
TEST(ReportHtml, NoPageMakesMarkupOfData) {
  int sources = 0;
  for (const char* folder : {"/client/loadtest/web", "/server/http/web"}) {
    for (const auto& file : std::filesystem::directory_iterator(std::string(WEIR_SOURCE_DIR) + folder)) {
      ++sources;
      std::ifstream in(file.path());
      const std::string source((std::istreambuf_iterator<char>(in)), {});
      for (const char* sink :
           {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc"})
        EXPECT_EQ(source.find(sink), std::string::npos) << file.path() << ": " << sink;
    }
  }
  EXPECT_GE(sources, 9);
}

}  // namespace weir
