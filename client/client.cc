#include "client/client.h"

#include <chrono>
#include <utility>

#include "client/call_context.h"
#include "client/connect.h"
#include "client/request_check.h"
#include "client/rpc_error.h"
#include "client/session_id.h"
#include "client/stream_check.h"
#include "fmt/format.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/models.grpc.pb.h"
#include "weir/v1/server_info.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {
namespace {

constexpr std::string_view kSessions = "sessions/";
constexpr std::string_view kModels = "models/";

std::string Resource(std::string_view prefix, std::string_view id_or_name) {
  const bool whole = id_or_name.empty() || id_or_name.substr(0, prefix.size()) == prefix;
  return whole ? std::string(id_or_name) : std::string(prefix).append(id_or_name);
}

}  // namespace

struct WeirClient::Connection {
  explicit Connection(std::shared_ptr<grpc::Channel> channel)
      : generation(v1::Generation::NewStub(channel)),
        sessions(v1::Sessions::NewStub(channel)),
        models(v1::Models::NewStub(channel)),
        server(v1::Server::NewStub(channel)),
        health(grpc::health::v1::Health::NewStub(channel)) {}

  void Prepare(std::string_view session, grpc::ClientContext* context) const {
    PrepareCall(session, api_key, call_timeout, context);
  }

  template <class Response, class Stub, class Request>
  absl::StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request, CancelToken* cancel,
                                std::string_view session = "") const {
    WEIR_RETURN_IF_ERROR(CheckText(request));
    grpc::ClientContext context;
    Prepare(session, &context);
    const CancelScope scope(cancel, &context);
    Response response;
    const grpc::Status status = ((*stub).*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status, address);
    return response;
  }

  std::string address;
  std::string api_key;
  absl::Duration call_timeout;
  std::unique_ptr<v1::Generation::Stub> generation;
  std::unique_ptr<v1::Sessions::Stub> sessions;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Server::Stub> server;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

WeirClient::WeirClient(std::shared_ptr<const Connection> connection) : connection_(std::move(connection)) {}

const std::string& WeirClient::address() const { return connection_->address; }

absl::StatusOr<WeirClient> WeirClient::Connect(std::string_view address, const ConnectOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const std::string target, TargetOf(address));
  WEIR_RETURN_IF_ERROR(CheckApiKey(options.api_key));
  WEIR_ASSIGN_OR_RETURN(const TlsFiles tls, ReadTlsFiles(options.tls));
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                        OpenChannel(target, options.tls, tls, options.timeout, options.cancel));
  auto connection = std::make_shared<Connection>(std::move(channel));
  connection->address = target;
  connection->api_key = options.api_key;
  connection->call_timeout = options.call_timeout;
  return WeirClient(std::move(connection));
}

absl::StatusOr<GenerateResult> WeirClient::Generate(const v1::GenerateRequest& request, OnDelta on_delta,
                                                    CancelToken* cancel) const {
  return GenerateEvents(
      request,
      [&](const v1::GenerateResponse& event) {
        if (event.has_delta()) on_delta(event.delta());
      },
      cancel);
}

absl::StatusOr<GenerateResult> WeirClient::GenerateEvents(const v1::GenerateRequest& request,
                                                          OnEvent on_event, CancelToken* cancel) const {
  WEIR_RETURN_IF_ERROR(CheckText(request));
  grpc::ClientContext context;
  connection_->Prepare(request.session(), &context);
  const CancelScope scope(cancel, &context);
  const auto start = std::chrono::steady_clock::now();
  const auto since_start = [&] { return absl::FromChrono(std::chrono::steady_clock::now() - start); };

  GenerateResult result;
  StreamCheck check;
  absl::Status damage;
  const std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader =
      connection_->generation->Generate(&context, request);
  v1::GenerateResponse event;
  while (damage.ok() && reader->Read(&event)) {
    damage = check.Add(event);
    if (!damage.ok()) {
      context.TryCancel();
      break;
    }
    if (result.time_to_first_token == absl::InfiniteDuration() && check.tokens() > 0)
      result.time_to_first_token = since_start();
    if (event.has_prompt_info()) result.prompt_info = event.prompt_info();
    if (event.has_finish()) result.finish = event.finish();
    on_event(event);
  }
  const grpc::Status status = reader->Finish();
  result.elapsed = since_start();
  WEIR_RETURN_IF_ERROR(damage);
  if (!status.ok()) return FromGrpc(status, connection_->address);
  WEIR_RETURN_IF_ERROR(check.End());
  return result;
}

absl::StatusOr<v1::Session> WeirClient::CreateSession(v1::CreateSessionRequest request,
                                                      CancelToken* cancel) const {
  if (request.session_id().empty())
    request.set_session_id(request.request_id().empty() ? RandomSessionId() : request.request_id());
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::CreateSession, request, cancel,
                           request.session_id());
}

absl::StatusOr<v1::Session> WeirClient::GetSession(const v1::GetSessionRequest& request,
                                                   CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::GetSession, request, cancel,
                           request.name());
}

absl::StatusOr<v1::ListSessionsResponse> WeirClient::ListSessions(const v1::ListSessionsRequest& request,
                                                                  CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::ListSessions, request, cancel);
}

absl::Status WeirClient::DeleteSession(const v1::DeleteSessionRequest& request, CancelToken* cancel) const {
  return connection_
      ->Call(connection_->sessions, &v1::Sessions::Stub::DeleteSession, request, cancel, request.name())
      .status();
}

absl::StatusOr<v1::AppendSessionResponse> WeirClient::AppendSession(const v1::AppendSessionRequest& request,
                                                                    CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::AppendSession, request, cancel,
                           request.name());
}

absl::StatusOr<v1::Session> WeirClient::ForkSession(const v1::ForkSessionRequest& request,
                                                    CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::ForkSession, request, cancel,
                           request.name());
}

absl::StatusOr<v1::Session> WeirClient::UpdateSession(const v1::UpdateSessionRequest& request,
                                                      CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::UpdateSession, request, cancel,
                           request.session().name());
}

absl::StatusOr<v1::Snapshot> WeirClient::CreateSnapshot(const v1::CreateSnapshotRequest& request,
                                                        CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::CreateSnapshot, request, cancel,
                           request.parent());
}

absl::StatusOr<v1::Snapshot> WeirClient::GetSnapshot(const v1::GetSnapshotRequest& request,
                                                     CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::GetSnapshot, request, cancel,
                           request.name());
}

absl::StatusOr<v1::ListSnapshotsResponse> WeirClient::ListSnapshots(const v1::ListSnapshotsRequest& request,
                                                                    CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::ListSnapshots, request, cancel,
                           request.parent());
}

absl::Status WeirClient::DeleteSnapshot(const v1::DeleteSnapshotRequest& request, CancelToken* cancel) const {
  return connection_
      ->Call(connection_->sessions, &v1::Sessions::Stub::DeleteSnapshot, request, cancel, request.name())
      .status();
}

absl::StatusOr<v1::Session> WeirClient::RollbackSession(const v1::RollbackSessionRequest& request,
                                                        CancelToken* cancel) const {
  return connection_->Call(connection_->sessions, &v1::Sessions::Stub::RollbackSession, request, cancel,
                           request.name());
}

absl::StatusOr<v1::Session> WeirClient::ExportSession(const v1::ExportSessionRequest& request, OnData on_data,
                                                      CancelToken* cancel) const {
  WEIR_RETURN_IF_ERROR(CheckText(request));
  grpc::ClientContext context;
  connection_->Prepare(request.name(), &context);
  const CancelScope scope(cancel, &context);
  const auto reader = connection_->sessions->ExportSession(&context, request);
  v1::Session session;
  int64_t remaining = 0;
  absl::Status taken;
  v1::ExportSessionResponse message;
  while (taken.ok() && reader->Read(&message)) {
    if (message.has_session()) {
      session = message.session();
      remaining = message.total_bytes();
    }
    remaining -= static_cast<int64_t>(message.data().size());
    taken = on_data(message.data());
  }
  if (!taken.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  WEIR_RETURN_IF_ERROR(taken);
  if (!status.ok()) return FromGrpc(status, connection_->address);
  if (remaining != 0)
    return MakeError(absl::StatusCode::kDataLoss, kStreamMalformed,
                     fmt::format("the export is {} bytes short of what was announced", remaining));
  return session;
}

absl::StatusOr<v1::Session> WeirClient::ImportSession(v1::ImportSessionRequest start, NextData next_data,
                                                      CancelToken* cancel) const {
  if (start.session_id().empty()) start.set_session_id(RandomSessionId());
  WEIR_RETURN_IF_ERROR(CheckText(start));
  grpc::ClientContext context;
  connection_->Prepare(start.session_id(), &context);
  const CancelScope scope(cancel, &context);
  v1::Session session;
  const auto writer = connection_->sessions->ImportSession(&context, &session);
  absl::Status given;
  for (v1::ImportSessionRequest message = std::move(start);; message.Clear()) {
    absl::StatusOr<std::string> data = next_data();
    given = data.status();
    if (!given.ok() || data->empty()) break;
    message.set_data(*std::move(data));
    if (!writer->Write(message)) break;  // the status says why
  }
  if (given.ok())
    writer->WritesDone();
  else
    context.TryCancel();
  const grpc::Status status = writer->Finish();
  WEIR_RETURN_IF_ERROR(given);
  if (!status.ok()) return FromGrpc(status, connection_->address);
  return session;
}

absl::StatusOr<v1::Model> WeirClient::GetModel(const v1::GetModelRequest& request,
                                               CancelToken* cancel) const {
  return connection_->Call(connection_->models, &v1::Models::Stub::GetModel, request, cancel);
}

absl::StatusOr<v1::ListModelsResponse> WeirClient::ListModels(const v1::ListModelsRequest& request,
                                                              CancelToken* cancel) const {
  return connection_->Call(connection_->models, &v1::Models::Stub::ListModels, request, cancel);
}

absl::StatusOr<v1::TokenizeResponse> WeirClient::Tokenize(const v1::TokenizeRequest& request,
                                                          CancelToken* cancel) const {
  return connection_->Call(connection_->models, &v1::Models::Stub::Tokenize, request, cancel);
}

absl::StatusOr<v1::DetokenizeResponse> WeirClient::Detokenize(const v1::DetokenizeRequest& request,
                                                              CancelToken* cancel) const {
  return connection_->Call(connection_->models, &v1::Models::Stub::Detokenize, request, cancel);
}

absl::StatusOr<v1::ScoreResponse> WeirClient::Score(const v1::ScoreRequest& request,
                                                    CancelToken* cancel) const {
  return connection_->Call(connection_->models, &v1::Models::Stub::Score, request, cancel);
}

absl::StatusOr<v1::ServerInfo> WeirClient::GetServerInfo(CancelToken* cancel) const {
  return connection_->Call(connection_->server, &v1::Server::Stub::GetServerInfo, v1::GetServerInfoRequest(),
                           cancel);
}

absl::StatusOr<Health> WeirClient::CheckHealth(std::string_view service, CancelToken* cancel) const {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service.data(), service.size());
  WEIR_ASSIGN_OR_RETURN(
      const grpc::health::v1::HealthCheckResponse response,
      connection_->Call(connection_->health, &grpc::health::v1::Health::Stub::Check, request, cancel));
  switch (response.status()) {
    case grpc::health::v1::HealthCheckResponse::SERVING:
      return Health::kServing;
    case grpc::health::v1::HealthCheckResponse::NOT_SERVING:
      return Health::kNotServing;
    default:
      return Health::kUnknown;
  }
}

std::string SessionResource(std::string_view id_or_name) { return Resource(kSessions, id_or_name); }
std::string ModelResource(std::string_view id_or_name) { return Resource(kModels, id_or_name); }
std::string SnapshotResource(std::string_view session, std::string_view id_or_name) {
  const bool whole = id_or_name.substr(0, kSessions.size()) == kSessions;
  return whole ? std::string(id_or_name) : SessionResource(session) + "/snapshots/" + std::string(id_or_name);
}

}  // namespace weir
