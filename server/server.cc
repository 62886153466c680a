#include "server/server.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr const char* kServices[] = {"weir.v1.Generation", "weir.v1.Models", "weir.v1.Sessions",
                                     "weir.v1.Server"};
// Calls that no turn stands behind, such as a health Watch, are not waited for.
constexpr absl::Duration kLastCalls = absl::Milliseconds(200);

// Whether linking the library already switches reflection on for every server of the process depends on the
// linker
// (--as-needed), so what is there is removed first; then this server alone gets what it was asked to have.
class ReflectionOption final : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionOption(bool enabled) : enabled_(enabled) {}
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
    if (enabled_) plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }

 private:
  const bool enabled_;
};

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

void SetTransport(const ServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  // Two servers on one port would share its connections, each with other sessions.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(kMinClientPing));
}

}  // namespace

WeirServer::WeirServer(const ServerOptions& options)
    : options_(options),
      watch_(std::make_unique<StreamWatch>(options.stuck_write)),
      generation_(&slot_, watch_.get()),
      models_(&slot_),
      sessions_(&slot_, watch_.get()),
      info_(&slot_, absl::Now()) {}

absl::StatusOr<std::unique_ptr<WeirServer>> WeirServer::Start(const ServerOptions& options) {
  std::unique_ptr<WeirServer> server(new WeirServer(options));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetTransport(options, &builder);
  builder.SetOption(std::make_unique<ReflectionOption>(options.reflection));
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &server->port_);
  for (grpc::Service* service : std::initializer_list<grpc::Service*>{&server->generation_, &server->models_,
                                                                      &server->sessions_, &server->info_})
    builder.RegisterService(service);
  server->grpc_ = builder.BuildAndStart();
  if (!server->grpc_)
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "ADDRESS_IN_USE",
        fmt::format("cannot listen on {}: another program has the port, or this machine has no such "
                    "address; choose another one with --listen",
                    Quoted(options.listen)),
        {{"listen", options.listen}});
  server->SetHealth(false);
  return server;
}

WeirServer::~WeirServer() { Shutdown(absl::Now()); }

std::string WeirServer::AddressText() const {
  const std::string& listen = options_.listen;
  const bool any_port = listen.size() > 2 && listen.substr(listen.size() - 2) == ":0";
  return any_port ? fmt::format("{}:{}", listen.substr(0, listen.size() - 2), port_) : listen;
}

void WeirServer::SetHealth(bool serving) {
  grpc::HealthCheckServiceInterface* health = grpc_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  for (const char* service : kServices) health->SetServingStatus(service, serving);
}

void WeirServer::Serve(std::unique_ptr<Engine> engine, std::vector<LoadedModel> models) {
  engine_ = std::move(engine);
  frontend_ = std::make_unique<Frontend>(engine_.get(), std::move(models), options_.frontend);
  slot_.Set(frontend_.get());
  SetHealth(true);
}

void WeirServer::Drain() {
  if (grpc_) SetHealth(false);
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
  while (live_streams() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  const absl::Time last = std::max(absl::Now(), std::min(deadline, absl::Now() + kLastCalls));
  grpc_->Shutdown(absl::ToChronoTime(last));
  grpc_->Wait();
  grpc_.reset();
  watch_.reset();
  frontend_.reset();
  engine_.reset();
}

}  // namespace weir
