// WeirServer: the listening socket, the services behind it, and the order in which they end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "model/loaded_model.h"
#include "runtime/engine/engine.h"
#include "server/access/access.h"
#include "server/frontend/frontend.h"
#include "server/grpc/gate.h"
#include "server/grpc/generation_service.h"
#include "server/grpc/models_service.h"
#include "server/grpc/server_service.h"
#include "server/grpc/sessions_service.h"
#include "server/grpc/stream_watch.h"
#include "server/http/status_pages.h"

namespace weir {

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";  // host:port, [v6]:port or unix:path; port 0: any free one
  std::string metrics_listen;             // the same; empty: no metrics over HTTP
  bool reflection = true;
  int max_message_bytes = 8 << 20;
  int max_metadata_bytes = 16 << 10;
  int max_streams = 1024;  // calls at once on one connection; clients hold more back
  // The server pings a silent connection after `time` and drops it when no answer comes within `timeout`.
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // Clients may ping this often, also without calls.
  absl::Duration min_ping_interval = absl::Seconds(10);
  // A connection without calls ends after this time; any connection after max_connection_age, when its calls
  // have ended or the grace is over. Clients connect anew by themselves.
  absl::Duration max_connection_idle = absl::Hours(1);
  absl::Duration max_connection_age = absl::InfiniteDuration();
  absl::Duration max_connection_age_grace = absl::InfiniteDuration();
  // A write that stays stuck for so long ends the call: the engine's stall limit and a grace.
  absl::Duration stuck_write = absl::Seconds(40);
  FrontendOptions frontend;
  AccessOptions access;
  std::function<int64_t()> dropped_log_lines;  // for the metrics; empty: none are
};

// Made, served and shut down by one thread; its parts run on gRPC's, the frontend's and the engine's.
class WeirServer {
 public:
  // Listens at once: health is NOT_SERVING and every call answers UNAVAILABLE until Serve().
  // ADDRESS_IN_USE (FAILED_PRECONDITION) when the address cannot be had, INVALID_ARGUMENT when a file of the
  // access options is not right.
  static absl::StatusOr<std::unique_ptr<WeirServer>> Start(const ServerOptions& options);
  ~WeirServer();  // Shutdown(now)

  // models[i] is the engine's model i. Health becomes SERVING.
  void Serve(std::unique_ptr<Engine> engine, std::vector<LoadedModel> models);

  int port() const { return port_; }
  int metrics_port() const { return pages_ ? pages_->port() : 0; }
  // What the keys' owners may hold, for EngineOptions; empty when no keys are asked for.
  QuotaLookup quota_of() const;
  // The addresses as listened on, with the port that port 0 became.
  std::string AddressText() const;
  std::string MetricsAddressText() const;
  Engine* engine() const { return engine_.get(); }  // null before Serve()
  // Generate, Export and Import calls that are not done, to the last byte.
  int64_t live_streams() const { return watch_->live(); }

  // Health NOT_SERVING, and nothing else: those who look at it send their calls elsewhere.
  void Leave();
  // Leaves, and refuses new work; what runs goes on.
  void Drain();
  // Nothing runs, waits, or is still being sent.
  bool Idle() const;
  // Ends what still runs with UNAVAILABLE, gives its last messages until `deadline` to leave, and joins.
  // Idempotent.
  void Shutdown(absl::Time deadline);

 private:
  WeirServer(const ServerOptions& options, std::unique_ptr<Access> access);
  absl::Status StartPages();
  void SetHealth(bool serving);

  const ServerOptions options_;
  const absl::Time start_time_;
  std::unique_ptr<Access> access_;
  Gate gate_;
  // Ends in the reverse order: gRPC's calls refer to all that stands above it.
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<StreamWatch> watch_;
  GenerationService generation_;
  ModelsService models_;
  SessionsService sessions_;
  ServerService info_;
  std::vector<std::unique_ptr<grpc::Service>> reflection_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<StatusPages> pages_;
  int port_ = 0;
};

}  // namespace weir
