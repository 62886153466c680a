// StatusPages: what --metrics-listen shows: /metrics, /healthz, /livez, /live.json, and the live page at /.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/frontend/frontend.h"
#include "server/http/http_server.h"

namespace weir {

// Nobody has to show a key here, and nothing tells of a single client: no owner, no session's name, no text.
class StatusPages {
 public:
  struct Sources {
    const Rejections* at_the_gate = nullptr;
    std::function<int64_t()> live_streams;
    std::function<int64_t()> dropped_log_lines;  // empty: none are
    absl::Time start_time;                       // of MonotonicNow()
  };

  // Listens; see HttpServer::Start. What `sources` and Open() name outlives this.
  static absl::StatusOr<std::unique_ptr<StatusPages>> Start(const std::string& listen, Sources sources);

  // The models are loaded. Any thread.
  void Open(Frontend* frontend) { frontend_.store(frontend, std::memory_order_release); }
  int port() const { return http_->port(); }

 private:
  explicit StatusPages(Sources sources) : sources_(std::move(sources)) {}
  HttpResponse Answer(const HttpRequest& request) const;  // the HTTP server's thread

  const Sources sources_;
  std::atomic<Frontend*> frontend_{nullptr};
  std::unique_ptr<HttpServer> http_;  // last: its thread uses the others
};

}  // namespace weir
