#include "server/http/status_pages.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "server/http/live_page.h"
#include "server/metrics/metrics.h"

namespace weir {
namespace {

// The page is one file: it loads nothing, from anywhere, and asks only this server.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr char kDataPolicy[] = "default-src 'none'; frame-ancestors 'none'";

HttpResponse Page(std::string content_type, std::string body, const char* policy = kDataPolicy) {
  HttpResponse response;
  response.content_type = std::move(content_type);
  response.body = std::move(body);
  response.headers.emplace_back("Content-Security-Policy", policy);
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StatusPages>> StatusPages::Start(const std::string& listen, Sources sources) {
  std::unique_ptr<StatusPages> pages(new StatusPages(std::move(sources)));
  WEIR_ASSIGN_OR_RETURN(pages->http_, HttpServer::Start(listen, "--metrics-listen",
                                                        [raw = pages.get()](const HttpRequest& request) {
                                                          return raw->Answer(request);
                                                        }));
  return pages;
}

HttpResponse StatusPages::Answer(const HttpRequest& request) const {
  MetricsView view;
  view.frontend = frontend_.load(std::memory_order_acquire);
  view.at_the_gate = sources_.at_the_gate;
  view.serving = view.frontend != nullptr && !view.frontend->leaving();
  view.live_streams = sources_.live_streams();
  if (sources_.dropped_log_lines) view.dropped_log_lines = sources_.dropped_log_lines();
  view.start_time = sources_.start_time;
  if (request.path == "/metrics") return Page(kMetricsContentType, MetricsText(view));
  if (request.path == "/live.json") return Page("application/json", LiveJson(view));
  if (request.path == "/figures")
    return Page("text/html; charset=utf-8", std::string(kFiguresPage), kPagePolicy);
  if (request.path == "/") return Page("text/html; charset=utf-8", std::string(kLivePage), kPagePolicy);
  constexpr char kText[] = "text/plain; charset=utf-8";
  if (request.path == "/livez") return Page(kText, "alive\n");
  HttpResponse response = Page(kText, view.serving               ? "serving\n"
                                      : view.frontend == nullptr ? "loading\n"
                                                                 : "draining\n");
  response.status = view.serving ? 200 : 503;
  if (request.path == "/healthz") return response;
  response.status = 404;
  response.body = "not found; there are /metrics, /healthz, /livez, /live.json, /figures and /\n";
  return response;
}

}  // namespace weir
