// The two pages in a real browser, where there is one: that the charts are there, with all their lines, and
// that no script failed. The browser's clock is virtual (it jumps while nothing is under way), so that
// seconds of polling take none and a slow machine changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/loadtest/report_html.h"
#include "server/http/live_page.h"
#include "tests/client/loadtest/sample_report.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The path of a Chromium, or empty.
std::string FindBrowser() {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  std::string folder;
  while (std::getline(folders, folder, ':'))
    for (const char* name : {"chromium-headless-shell", "chromium", "google-chrome"})
      if (std::string path = folder + "/" + name; ::access(path.c_str(), X_OK) == 0) return path;
  return "";
}

// The document as it is after `seconds` of the browser's time.
std::string Dom(const std::string& url, int seconds) {
  const testing::TempDir profile;
  const std::string command =
      "HOME=" + profile.path() + " timeout -k 5 100 " + FindBrowser() +
      " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=" + profile.path() +
      "/profile --window-size=1200,900 --virtual-time-budget=" + std::to_string(seconds * 1000) +
      " --dump-dom '" + url + "' 2>" + profile.File("log");
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string dom;
  std::array<char, 65536> piece;
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), pipe)) dom.append(piece.data(), size);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return dom;
}

std::string HtmlAttribute(const std::string& dom, const std::string& name) {
  std::smatch match;
  const std::string head =
      dom.substr(dom.find("<html"), dom.find('>', dom.find("<html")) - dom.find("<html"));
  return std::regex_search(head, match, std::regex(name + "=\"([^\"]*)\"")) ? match[1].str() : "absent";
}

// Chart -> its lines, of all charts that were drawn; of several charts of one name, those of the last.
std::map<std::string, int> Charts(const std::string& dom) {
  std::map<std::string, int> charts;
  const std::regex chart("data-chart=\"([a-z0-9_-]+)\" data-series=\"([0-9]+)\"");
  for (std::sregex_iterator it(dom.begin(), dom.end(), chart), end; it != end; ++it)
    charts[(*it)[1]] = std::stoi((*it)[2]);
  return charts;
}

int Markers(const std::string& dom, const std::string& name) {
  const size_t from = dom.find("data-chart=\"" + name + "\""), end = dom.find("</svg>", from);
  int markers = 0;
  for (size_t at = from; (at = dom.find("class=\"marker", at + 1)) < end;) ++markers;
  return markers;
}

// What is shown, without the scripts: the page's own source would hold many a text that is looked for.
std::string Shown(const std::string& dom) {
  std::string shown;
  size_t at = 0;
  for (size_t script; (script = dom.find("<script", at)) != std::string::npos;
       at = dom.find("</script>", script))
    shown += dom.substr(at, script - at);
  return shown + dom.substr(at);
}

// Answers each GET as it is told to; an empty answer closes the connection without a word.
class ScriptedHttp {
 public:
  explicit ScriptedHttp(std::function<std::string(const std::string& path)> answer)
      : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedHttp() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }

 private:
  void Run() {
    while (!stop_) {
      pollfd wait{listener_, POLLIN, 0};
      if (::poll(&wait, 1, 50) <= 0) continue;
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection >= 0) Answer(connection);
    }
  }
  // A connection that sends nothing (browsers open some ahead) is not waited for.
  void Answer(int connection) {
    std::string request;
    pollfd wait{connection, POLLIN, 0};
    std::array<char, 4096> piece;
    while (request.find("\r\n\r\n") == std::string::npos && ::poll(&wait, 1, 5000) > 0) {
      const ssize_t size = ::read(connection, piece.data(), piece.size());
      if (size <= 0) break;
      request.append(piece.data(), static_cast<size_t>(size));
    }
    if (request.rfind("GET ", 0) == 0) {
      const std::string body = answer_(request.substr(4, request.find(' ', 4) - 4));
      const std::string response =
          "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\n\r\n" + body;
      if (!body.empty())
        for (size_t sent = 0; sent < response.size();) {
          const ssize_t size =
              ::send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
          if (size <= 0) break;
          sent += static_cast<size_t>(size);
        }
    }
    ::close(connection);
  }

  std::function<std::string(const std::string&)> answer_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

nlohmann::json LiveModel(const std::string& name, bool paged, int64_t second) {
  return {{"name", name},
          {"mixer", paged ? "softmax" : "linear_attention"},
          {"state_kind", paged ? "paged" : "fixed"},
          {"fixed_bytes", paged ? 0 : 640512},
          {"block_bytes", paged ? 294912 : 0},
          {"block_tokens", paged ? 64 : 0},
          {"heads", nullptr},
          {"slots_total", 256},
          {"slots_free", 254},
          {"kv_blocks_total", paged ? 1000 : 0},
          {"kv_blocks_free", paged ? 900 : 0},
          {"sessions", 2},
          {"running", 2},
          {"waiting", 0},
          {"prompt_tokens", 64},
          {"generated_tokens", 200 * second},
          {"steps", 100 * second},
          {"step_seconds_sum", 0.4 * static_cast<double>(second)},
          {"positions", {{"sum", 64 + 200 * second}, {"max", 48 + 100 * second}}}};
}

// What the server says after `second` seconds: two sessions a model, 100 tokens a second each.
std::string LiveAnswer(int64_t second) {
  return nlohmann::json{
      {"version", "0.1.0"},
      {"uptime_seconds", 673.0 + static_cast<double>(second)},
      {"device", "cpu"},
      {"process_resident_bytes", 314572800},
      {"draining", false},
      {"models", {LiveModel("</script><b>one", false, second), LiveModel("two", true, second)}}}
      .dump();
}

std::string TableRow(const std::vector<std::string>& cells) {
  std::string row = "<tr><th scope=\"row\">" + cells[0] + "</th>";
  for (size_t i = 1; i < cells.size(); ++i) row += "<td>" + cells[i] + "</td>";
  return row + "</tr>";
}

// Counts the tiles whose figure takes a second line, or more room than the tile has.
constexpr const char* kCountBrokenTiles =
    "<script>setTimeout(() => { document.documentElement.dataset.broken = "
    "[...document.querySelectorAll('.tiles .figure')].filter((p) => p.scrollWidth > p.clientWidth || "
    "p.clientHeight > 1.5 * parseFloat(getComputedStyle(p).fontSize)).length; }, 4000);</script>";

// One test, so that a build without a browser says so once.
TEST(PagesInBrowser, DrawTheirChartsWithoutAnError) {
  if (FindBrowser().empty())
    GTEST_SKIP() << "no Chromium is installed here; apt-get install chromium-headless-shell brings one";
  const testing::TempDir folder;
  nlohmann::json report = SampleReport();
  report["models"][0]["name"] = "</script><b>bold";
  std::string dom = Dom("file://" + folder.Write("report.html", RenderHtmlReport(report)), 2);
  EXPECT_EQ(HtmlAttribute(dom, "data-ready"), "true");
  EXPECT_EQ(HtmlAttribute(dom, "data-errors"), "0");
  EXPECT_THAT(
      Charts(dom),
      UnorderedElementsAre(Pair("memory", 10), Pair("arena", 5), Pair("anonymous", 5),
                           Pair("leak-anonymous", 5), Pair("resident", 5), Pair("proportional", 5),
                           Pair("leak-resident", 5), Pair("leak-proportional", 5), Pair("itl-position", 5),
                           Pair("itl-band", 1), Pair("ttft_ms", 5), Pair("itl_ms", 5), Pair("tpot_ms", 5),
                           Pair("e2e_ms", 5), Pair("timeline", 5), Pair("throughput-concurrency", 5)));
  EXPECT_THAT(Shown(dom), HasSubstr("<h1>0 bytes per token</h1>"));
  EXPECT_THAT(Shown(dom),
              HasSubstr("Below 257 tokens a session of tales-performer (1,239,936 bytes) needs more memory "
                        "than one of tales-softmax; from there on it does not."));
  EXPECT_THAT(Shown(dom), HasSubstr("&lt;/script&gt;&lt;b&gt;bold"));  // a text, no element
  EXPECT_THAT(Shown(dom), Not(HasSubstr("<b>bold")));

  // A time per token has its spread, and a percentage beside it.
  EXPECT_THAT(Shown(dom),
              ContainsRegex("tales-mamba: [0-9.]+ ms \\([0-9.]+ ms to [0-9.]+ ms\\) at position 1,000, "
                            "[0-9.]+ ms \\([^)]*\\) at 1,000,000: [^ ]+ %, less than the tokens' "
                            "own spread"));
  EXPECT_THAT(Shown(dom), ContainsRegex("tales-softmax pays [0-9,.]+ ± [0-9.]+ bytes per token"));

  // Nothing decided is no failure, and does not look like one; what could not be timed is not 0.
  nlohmann::json open = SampleReport();
  open["passed"] = false;
  open["failures"] = {"tales-linear: growth: more tokens"};
  open["mixed"] = nullptr;
  open["models"] = nlohmann::json::array({open["models"][0]});
  nlohmann::json& growth = open["models"][0]["growth"];
  growth["verdict"] = growth["outcome"] = "undecided";
  growth["why"] = "more tokens";
  growth["slope"]["session"] = {
      {"bytes_per_token", 256}, {"low", nullptr}, {"high", nullptr}, {"exact", false}, {"samples", 3}};
  for (nlohmann::json& point : growth["points"]) point["itl_ms"] = nullptr, point["device_bytes"] = 5 << 20;
  growth["slope"]["device"] = {
      {"bytes_per_token", 0}, {"low", 0}, {"high", 0}, {"exact", false}, {"samples", 120}};
  dom = Dom("file://" + folder.Write("open.html", RenderHtmlReport(open)), 2);
  EXPECT_EQ(HtmlAttribute(dom, "data-errors"), "0");
  EXPECT_THAT(Shown(dom), HasSubstr("<h1>Undecided</h1>"));
  EXPECT_THAT(Shown(dom), HasSubstr("<span class=\"badge open\">? undecided</span>"));
  EXPECT_THAT(Shown(dom), HasSubstr("<p class=\"verdict open\">? undecided</p>"));
  EXPECT_THAT(Shown(dom), HasSubstr("256 (3 readings, no interval)"));
  for (const char* failed : {"✗", "class=\"plain bad\"", "NaN"})
    EXPECT_THAT(Shown(dom), Not(HasSubstr(failed)));
  EXPECT_EQ(Charts(dom).count("itl-position"), 0u);
  EXPECT_EQ(Charts(dom).count("device"), 1u);

  // Traffic alone, of one model, at one concurrency; and a run that measured nothing and failed.
  nlohmann::json traffic = SampleReport();
  traffic["mixed"] = nullptr;
  traffic["models"] = nlohmann::json::array({traffic["models"][0]});
  traffic["models"][0]["growth"] = nullptr;
  traffic["models"][0]["traffic"].erase(1);
  traffic["models"][0]["traffic"].erase(1);
  traffic["models"][0]["traffic"][0]["tpot_ms"] = {{"count", 0}, {"p50", nullptr}, {"p99", nullptr}};
  // And a capacity run that was interrupted before it had opened a session.
  for (auto& [key, value] : traffic["models"][0]["capacity"].items())
    if (value.is_object())
      value = {{"count", 0}, {"p50", nullptr}, {"p99", nullptr}};
    else
      value = nullptr;
  traffic["models"][0]["traffic"][0]["itl_ms"] = {{"count", 9},  {"p50", 0},   {"p90", 0},
                                                  {"p99", 31.5}, {"p999", 40}, {"max", 40}};
  dom = Dom("file://" + folder.Write("traffic.html", RenderHtmlReport(traffic)), 2);
  EXPECT_EQ(HtmlAttribute(dom, "data-errors"), "0");
  EXPECT_THAT(Charts(dom),
              UnorderedElementsAre(Pair("ttft_ms", 1), Pair("itl_ms", 1), Pair("tpot_ms", 0),
                                   Pair("e2e_ms", 1), Pair("timeline", 1), Pair("throughput", 1)));
  EXPECT_EQ(Markers(dom, "itl_ms"), 5);  // 0 ms, of tokens that share a message, is drawn as well
  EXPECT_THAT(Shown(dom),
              HasSubstr("Of tokens that share a message the first has the whole gap, the others 0."));
  EXPECT_THAT(Shown(dom), HasSubstr(TableRow({"tales-linear", "not tried", "not tried", "–", "not tried",
                                              "not tried", "–", "–", "–", "–", "–"})));
  dom = Dom("file://" + folder.Write("none.html",
                                     RenderHtmlReport({{"passed", false}, {"failures", {"No <b>server"}}})),
            2);
  EXPECT_EQ(HtmlAttribute(dom, "data-errors"), "0");
  EXPECT_THAT(Charts(dom), ElementsAre());
  EXPECT_THAT(Shown(dom), HasSubstr("<li>No &lt;b&gt;server</li>"));

  // The live page: five answers, then silence.
  int64_t second = 0;
  {
    const ScriptedHttp server([&second](const std::string& path) -> std::string {
      if (path != "/live.json") return std::string(kLivePage) + kCountBrokenTiles;
      return second < 5 ? LiveAnswer(second++) : "";
    });
    dom = Dom(server.url(), 8);
  }
  EXPECT_EQ(second, 5);
  EXPECT_EQ(HtmlAttribute(dom, "data-errors"), "0");
  EXPECT_EQ(HtmlAttribute(dom, "data-polls"), "5");
  EXPECT_EQ(HtmlAttribute(dom, "data-state"), "unreachable");
  EXPECT_THAT(Shown(dom), ContainsRegex("<p class=\"figure\">11 min 1[0-9] s</p>"));
  EXPECT_EQ(HtmlAttribute(dom, "data-broken"), "0");
  // bytes: two lines; marks of either model's sessions, and of the twin above those of the first. costs: two
  // lines, and what was measured of both.
  EXPECT_THAT(Charts(dom),
              UnorderedElementsAre(Pair("rate", 2), Pair("bytes", 5), Pair("slots", 3), Pair("costs", 4)));
  const std::string shown = Shown(dom);
  EXPECT_THAT(shown, HasSubstr("no answer since"));
  EXPECT_THAT(
      shown,
      HasSubstr("The furthest session of &lt;/script&gt;&lt;b&gt;one is at position 448 and keeps 626 KiB; "
                "two would need 1.97 MiB there, 3.2× as much."));
  EXPECT_THAT(shown, HasSubstr("<p class=\"figure\">400</p><p class=\"soft\">tokens per second</p>"));
  // The lesson's figures: n, n²d, nd², their ratio, n·n, d·d, their ratio.
  EXPECT_THAT(shown, HasSubstr("the standard order costs <b>134.2M</b>, the linear one <b>16.8M</b>. "
                               "<b>Linear is 8.0× cheaper.</b>"));
  EXPECT_THAT(shown, HasSubstr(TableRow({"128", "2.1M", "2.1M", "1.0×", "16,384", "16,384", "1.0×"})));
  EXPECT_THAT(shown, HasSubstr(TableRow({"1,024", "134.2M", "16.8M", "8.0×", "1,048,576", "16,384", "64×"})));
  EXPECT_THAT(shown,
              HasSubstr(TableRow({"10,000", "12.8B", "163.8M", "78×", "100,000,000", "16,384", "6,100×"})));
  EXPECT_THAT(shown,
              HasSubstr(TableRow({"16,384", "34.4B", "268.4M", "128×", "268,435,456", "16,384", "16,000×"})));
}

}  // namespace
}  // namespace weir
