#include "server/server.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/grpc/reflection_service.h"
#include "server/grpc/tls_credentials.h"
#include "server/listen_check.h"

namespace weir {
namespace {

constexpr const char* kServices[] = {"weir.v1.Generation", "weir.v1.Models", "weir.v1.Sessions",
                                     "weir.v1.Server"};
// Calls that no turn stands behind, such as a health Watch, are not waited for.
constexpr absl::Duration kLastCalls = absl::Milliseconds(200);
constexpr double kPingTolerance = 0.95;  // of the documented interval, for timers jitter

// INT_MAX is gRPC's word for never.
int Milliseconds(absl::Duration duration) {
  return static_cast<int>(
      std::min<int64_t>(absl::ToInt64Milliseconds(duration), std::numeric_limits<int>::max()));
}

void SetTransport(const ServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  // gRPC counts the bytes that come, and unpacks them to a thousand times as many.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  // Two servers on one port would share its connections, each with other sessions.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(options.min_ping_interval * kPingTolerance));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(options.max_connection_idle));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(options.max_connection_age));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                              Milliseconds(options.max_connection_age_grace));
}

// `listen` with the port that port 0 became.
std::string WithPort(const std::string& listen, int port) {
  return listen.ends_with(":0") ? fmt::format("{}:{}", listen.substr(0, listen.size() - 2), port) : listen;
}

}  // namespace

WeirServer::WeirServer(const ServerOptions& options, std::unique_ptr<Access> access)
    : options_(options),
      start_time_(MonotonicNow()),
      access_(std::move(access)),
      gate_(access_.get()),
      watch_(std::make_unique<StreamWatch>(options.stuck_write)),
      generation_(&gate_, watch_.get()),
      models_(&gate_),
      sessions_(&gate_, watch_.get()),
      info_(&gate_, start_time_) {}

absl::StatusOr<std::unique_ptr<WeirServer>> WeirServer::Start(const ServerOptions& options) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Access> access, Access::Create(options.access));
  std::unique_ptr<WeirServer> server(new WeirServer(options, std::move(access)));
  WEIR_RETURN_IF_ERROR(CheckListenAddress(options.listen));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetTransport(options, &builder);
  server->credentials_ = options.access.tls.enabled() ? ReloadingTlsCredentials(server->access_.get())
                                                      : grpc::InsecureServerCredentials();
  builder.AddListeningPort(options.listen, server->credentials_, &server->port_);
  for (grpc::Service* service : std::initializer_list<grpc::Service*>{&server->generation_, &server->models_,
                                                                      &server->sessions_, &server->info_})
    builder.RegisterService(service);
  if (options.reflection) {
    std::vector<std::string> names(std::begin(kServices), std::end(kServices));
    names.emplace_back("grpc.health.v1.Health");
    server->reflection_ = MakeReflectionServices(&server->gate_, std::move(names));
    for (const auto& service : server->reflection_) builder.RegisterService(service.get());
  }
  server->grpc_ = builder.BuildAndStart();
  if (!server->grpc_)
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "ADDRESS_IN_USE",
        fmt::format("cannot listen on {}; choose another address with --listen", Quoted(options.listen)),
        {{"listen", options.listen}});
  server->SetHealth(false);
  WEIR_RETURN_IF_ERROR(server->StartPages());
  return server;
}

WeirServer::~WeirServer() { Shutdown(MonotonicNow()); }

absl::Status WeirServer::StartPages() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  StatusPages::Sources sources;
  sources.at_the_gate = &gate_.rejections();
  sources.live_streams = [this] { return live_streams(); };
  sources.dropped_log_lines = options_.dropped_log_lines;
  sources.start_time = start_time_;
  WEIR_ASSIGN_OR_RETURN(pages_, StatusPages::Start(options_.metrics_listen, std::move(sources)));
  return absl::OkStatus();
}

std::string WeirServer::AddressText() const { return WithPort(options_.listen, port_); }

std::string WeirServer::MetricsAddressText() const {
  return WithPort(options_.metrics_listen, metrics_port());
}

QuotaLookup WeirServer::quota_of() const {
  const Authenticator* authenticator = access_->authenticator();
  if (authenticator == nullptr) return nullptr;
  return [authenticator](const std::string& owner) {
    const KeyLimits limits = authenticator->LimitsOf(owner);
    return OwnerQuota{limits.sessions, limits.state_bytes};
  };
}

void WeirServer::SetHealth(bool serving) {
  grpc::HealthCheckServiceInterface* health = grpc_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  for (const char* service : kServices) health->SetServingStatus(service, serving);
}

void WeirServer::Serve(std::unique_ptr<Engine> engine, std::vector<LoadedModel> models) {
  engine_ = std::move(engine);
  frontend_ = std::make_unique<Frontend>(engine_.get(), std::move(models), options_.frontend);
  gate_.Open(frontend_.get());
  if (pages_) pages_->Open(frontend_.get());
  SetHealth(true);
}

void WeirServer::Leave() {
  if (grpc_) SetHealth(false);
  if (frontend_) frontend_->Leave();
}

void WeirServer::Drain() {
  Leave();
  if (engine_) engine_->Drain();
}

bool WeirServer::Idle() const {
  return (!frontend_ || frontend_->turns() == 0) && (!engine_ || engine_->Idle()) && live_streams() == 0;
}

void WeirServer::Shutdown(absl::Time deadline) {
  if (!grpc_) return;
  Drain();
  if (frontend_) frontend_->Stop();
  if (engine_) engine_->Stop();
  while (live_streams() > 0 && MonotonicNow() < deadline) absl::SleepFor(absl::Milliseconds(2));
  const absl::Time last = std::max(MonotonicNow(), std::min(deadline, MonotonicNow() + kLastCalls));
  grpc_->Shutdown(absl::ToChronoTime(ToWallTime(last)));
  grpc_->Wait();
  pages_.reset();
  grpc_.reset();
  watch_.reset();
  frontend_.reset();
  engine_.reset();
}

}  // namespace weir
