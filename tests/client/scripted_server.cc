#include "tests/client/scripted_server.h"

#include <chrono>

#include "google/protobuf/text_format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/check.h"

namespace weir {

ScriptedServer::ScriptedServer(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  on_generate = Texts({"a", "b"});
  health = grpc::health::v1::HealthCheckResponse::SERVING;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
  builder.RegisterService(static_cast<v1::Generation::Service*>(this));
  builder.RegisterService(static_cast<v1::Sessions::Service*>(this));
  builder.RegisterService(static_cast<v1::Models::Service*>(this));
  builder.RegisterService(static_cast<v1::Server::Service*>(this));
  builder.RegisterService(static_cast<grpc::health::v1::Health::Service*>(this));
  server_ = builder.BuildAndStart();
  WEIR_CHECK(server_ != nullptr && port_ != 0);
}

ScriptedServer::~ScriptedServer() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  server_->Wait();
}

std::string ScriptedServer::address() const { return "127.0.0.1:" + std::to_string(port_); }

ScriptedServer::OnGenerate ScriptedServer::Texts(std::vector<std::string> texts) {
  return [texts = std::move(texts)](grpc::ServerContext*, Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    int64_t position = 3;
    for (const std::string& text : texts) {
      writer->Write(DeltaEvent(position, text, {static_cast<int32_t>(100 + position)}));
      ++position;
    }
    writer->Write(FinishEvent(position - 3, position));
    return grpc::Status::OK;
  };
}

std::string ScriptedServer::session_id() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return session_id_;
}

std::string ScriptedServer::authorization() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return authorization_;
}

int ScriptedServer::calls() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return calls_;
}

void ScriptedServer::Record(const grpc::ServerContext& context, const google::protobuf::Message& request) {
  const std::lock_guard<std::mutex> lock(mu_);
  ++calls_;
  requests_[request.GetTypeName()] = request.SerializeAsString();
  const auto at = context.client_metadata().find("x-session-id");
  session_id_ =
      at == context.client_metadata().end() ? "" : std::string(at->second.data(), at->second.size());
  const auto key = context.client_metadata().find("authorization");
  authorization_ =
      key == context.client_metadata().end() ? "" : std::string(key->second.data(), key->second.size());
}

grpc::Status ScriptedServer::Answer(const grpc::ServerContext& context,
                                    const google::protobuf::Message& request,
                                    google::protobuf::Message* response) {
  Record(context, request);
  if (const grpc::Status failure = status.Get(); !failure.ok()) return failure;
  const std::map<std::string, std::string> texts = answers.Get();
  const auto at = texts.find(response->GetTypeName());
  if (at != texts.end()) WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(at->second, response));
  return grpc::Status::OK;
}

grpc::Status ScriptedServer::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                      Writer* writer) {
  Record(*context, *request);
  return on_generate.Get()(context, writer);
}

grpc::Status ScriptedServer::CreateSession(grpc::ServerContext* c, const v1::CreateSessionRequest* q,
                                           v1::Session* r) {
  r->set_name("sessions/" + q->session_id());
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::GetSession(grpc::ServerContext* c, const v1::GetSessionRequest* q,
                                        v1::Session* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::ListSessions(grpc::ServerContext* c, const v1::ListSessionsRequest* q,
                                          v1::ListSessionsResponse* r) {
  const grpc::Status result = Answer(*c, *q, r);
  // The second page is the last.
  if (!q->page_token().empty()) r->clear_next_page_token();
  return result;
}
grpc::Status ScriptedServer::DeleteSession(grpc::ServerContext* c, const v1::DeleteSessionRequest* q,
                                           google::protobuf::Empty* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::AppendSession(grpc::ServerContext* c, const v1::AppendSessionRequest* q,
                                           v1::AppendSessionResponse* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::ForkSession(grpc::ServerContext* c, const v1::ForkSessionRequest* q,
                                         v1::Session* r) {
  r->set_name("sessions/" + q->session_id());
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::UpdateSession(grpc::ServerContext* c, const v1::UpdateSessionRequest* q,
                                           v1::Session* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::CreateSnapshot(grpc::ServerContext* c, const v1::CreateSnapshotRequest* q,
                                            v1::Snapshot* r) {
  r->set_name(q->parent() + "/snapshots/" + q->snapshot_id());
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::GetSnapshot(grpc::ServerContext* c, const v1::GetSnapshotRequest* q,
                                         v1::Snapshot* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::ListSnapshots(grpc::ServerContext* c, const v1::ListSnapshotsRequest* q,
                                           v1::ListSnapshotsResponse* r) {
  const grpc::Status result = Answer(*c, *q, r);
  // The second page is the last.
  if (!q->page_token().empty()) r->clear_next_page_token();
  return result;
}
grpc::Status ScriptedServer::DeleteSnapshot(grpc::ServerContext* c, const v1::DeleteSnapshotRequest* q,
                                            google::protobuf::Empty* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::RollbackSession(grpc::ServerContext* c, const v1::RollbackSessionRequest* q,
                                             v1::Session* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::ExportSession(grpc::ServerContext* c, const v1::ExportSessionRequest* q,
                                           grpc::ServerWriter<v1::ExportSessionResponse>* writer) {
  v1::ExportSessionResponse message;
  const grpc::Status result = Answer(*c, *q, message.mutable_session());
  const std::vector<std::string> pieces = export_pieces.Get();
  int64_t total = export_total.Get();
  if (total == 0)
    for (const std::string& piece : pieces) total += static_cast<int64_t>(piece.size());
  message.set_total_bytes(total);
  for (const std::string& piece : pieces) {
    message.set_data(piece);
    if (!writer->Write(message)) break;
    message.Clear();
  }
  return result;
}
grpc::Status ScriptedServer::ImportSession(grpc::ServerContext* c,
                                           grpc::ServerReader<v1::ImportSessionRequest>* reader,
                                           v1::Session* r) {
  v1::ImportSessionRequest message;
  std::string bytes;
  for (bool first = true; reader->Read(&message); first = false) {
    bytes += message.data();
    if (!first) continue;
    r->set_name("sessions/" + message.session_id());
    message.clear_data();
    Record(*c, message);
    if (const grpc::Status refusal = import_refusal.Get(); !refusal.ok()) return refusal;
  }
  imported = bytes;
  return grpc::Status::OK;
}
grpc::Status ScriptedServer::GetModel(grpc::ServerContext* c, const v1::GetModelRequest* q, v1::Model* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::ListModels(grpc::ServerContext* c, const v1::ListModelsRequest* q,
                                        v1::ListModelsResponse* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::Tokenize(grpc::ServerContext* c, const v1::TokenizeRequest* q,
                                      v1::TokenizeResponse* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::Detokenize(grpc::ServerContext* c, const v1::DetokenizeRequest* q,
                                        v1::DetokenizeResponse* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::Score(grpc::ServerContext* c, const v1::ScoreRequest* q, v1::ScoreResponse* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::GetServerInfo(grpc::ServerContext* c, const v1::GetServerInfoRequest* q,
                                           v1::ServerInfo* r) {
  return Answer(*c, *q, r);
}
grpc::Status ScriptedServer::Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                                   grpc::health::v1::HealthCheckResponse* response) {
  response->set_status(health.Get());
  return grpc::Status::OK;
}

grpc::Status RichStatus(grpc::StatusCode code, const std::string& reason, const std::string& message,
                        const std::map<std::string, std::string>& metadata, int retry_seconds) {
  google::rpc::Status rpc;
  rpc.set_code(code);
  rpc.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("weir.v1");
  for (const auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
  rpc.add_details()->PackFrom(info);
  if (retry_seconds > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_seconds);
    rpc.add_details()->PackFrom(retry);
  }
  return grpc::Status(code, message, rpc.SerializeAsString());
}

v1::GenerateResponse PromptInfoEvent(int64_t reused, int64_t prompt) {
  v1::GenerateResponse event;
  event.mutable_prompt_info()->set_reused_tokens(reused);
  event.mutable_prompt_info()->set_prompt_tokens(prompt);
  event.mutable_prompt_info()->set_model("models/test");
  event.mutable_prompt_info()->set_seed(18446744073709551615u);
  return event;
}

v1::GenerateResponse DeltaEvent(int64_t position, const std::string& text, std::vector<int32_t> ids) {
  v1::GenerateResponse event;
  event.mutable_delta()->set_position(position);
  event.mutable_delta()->set_text(text);
  for (const int32_t id : ids) event.mutable_delta()->add_token_ids(id);
  return event;
}

v1::GenerateResponse FinishEvent(int64_t generated, int64_t position) {
  v1::GenerateResponse event;
  event.mutable_finish()->set_max_tokens(generated);
  event.mutable_finish()->mutable_usage()->set_prompt_tokens(3);
  event.mutable_finish()->mutable_usage()->set_generated_tokens(generated);
  event.mutable_finish()->mutable_usage()->set_position(position);
  return event;
}

}  // namespace weir
