// HttpServer: answers GET and HEAD over HTTP/1.x, for metrics, probes and one page. One thread serves all
// connections and waits for none of them, so that a client that sends or reads slowly, or not at all, holds
// up nobody else.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/http/http_request.h"

namespace weir {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

struct HttpLimits {
  int max_connections = 64;  // one more ends the one that has sent no whole request for the longest time
  size_t max_request_bytes = 8192;
  absl::Duration request_time = absl::Seconds(5);  // from the connection to the end of the request
  absl::Duration answer_time = absl::Seconds(10);
};

class HttpServer {
 public:
  // Runs on the server's thread: must not take long.
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  // `listen`: HOST:PORT, [IPV6]:PORT or unix:PATH, from option `flag`; port 0: any free one.
  // FAILED_PRECONDITION (ADDRESS_IN_USE or ADDRESS_NOT_AVAILABLE) names the address, the reason and the
  // remedy.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen, std::string_view flag,
                                                           Handler handler, const HttpLimits& limits = {});
  ~HttpServer();  // ends all connections
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }  // 0 for a unix socket

 private:
  class Loop;
  HttpServer();

  std::unique_ptr<Loop> loop_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace weir
