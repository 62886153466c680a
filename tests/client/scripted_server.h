// A gRPC server on a real socket whose answers a test writes down.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/models.grpc.pb.h"
#include "weir/v1/server_info.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {

// A part of the script: set by the test, read by gRPC's threads. The socket between them orders both, but
// ThreadSanitizer does not see into gRPC.
template <class T>
class Scripted {
 public:
  Scripted() = default;
  void operator=(T value) {
    const std::lock_guard<std::mutex> lock(mu_);
    value_ = std::move(value);
  }
  T Get() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return value_;
  }

 private:
  mutable std::mutex mu_;
  T value_{};
};

// Handlers run on gRPC's threads. What arrived is read after the call has returned.
class ScriptedServer : private v1::Generation::Service,
                       private v1::Sessions::Service,
                       private v1::Models::Service,
                       private v1::Server::Service,
                       private grpc::health::v1::Health::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  using OnGenerate = std::function<grpc::Status(grpc::ServerContext*, Writer*)>;

  explicit ScriptedServer(
      const std::shared_ptr<grpc::ServerCredentials>& credentials = grpc::InsecureServerCredentials());
  ~ScriptedServer() override;

  std::string address() const;
  int port() const { return port_; }

  // A whole turn: prompt_info, one delta of one token per text, finish.
  static OnGenerate Texts(std::vector<std::string> texts);
  Scripted<OnGenerate> on_generate;                                       // at first: the texts "a" and "b"
  Scripted<grpc::Status> status;                                          // of every unary call but Check
  Scripted<grpc::health::v1::HealthCheckResponse::ServingStatus> health;  // at first: SERVING
  Scripted<std::map<std::string, std::string>> answers;  // full name of a message: its text format

  // ExportSession sends these, the first with the length of all unless that is said here.
  Scripted<std::vector<std::string>> export_pieces;
  Scripted<int64_t> export_total;
  // What came by ImportSession; an import that is to be refused ends after its first message.
  Scripted<std::string> imported;
  Scripted<grpc::Status> import_refusal;

  v1::GenerateRequest generate_request() const { return Last<v1::GenerateRequest>(); }
  template <class Message>
  Message Last() const {
    const std::lock_guard<std::mutex> lock(mu_);
    Message message;
    const auto at = requests_.find(message.GetTypeName());
    if (at != requests_.end()) message.ParseFromString(at->second);
    return message;
  }
  // Whether a request of this type has come.
  bool Received(const std::string& full_name) const {
    const std::lock_guard<std::mutex> lock(mu_);
    return requests_.contains(full_name);
  }
  // `x-session-id` of the latest call; empty when it had none.
  std::string session_id() const;
  // `authorization` likewise.
  std::string authorization() const;
  int calls() const;

 private:
  void Record(const grpc::ServerContext& context, const google::protobuf::Message& request);
  grpc::Status Answer(const grpc::ServerContext& context, const google::protobuf::Message& request,
                      google::protobuf::Message* response);

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        Writer* writer) override;
  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest*, v1::Session*) override;
  grpc::Status GetSession(grpc::ServerContext*, const v1::GetSessionRequest*, v1::Session*) override;
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse*) override;
  grpc::Status DeleteSession(grpc::ServerContext*, const v1::DeleteSessionRequest*,
                             google::protobuf::Empty*) override;
  grpc::Status AppendSession(grpc::ServerContext*, const v1::AppendSessionRequest*,
                             v1::AppendSessionResponse*) override;
  grpc::Status ForkSession(grpc::ServerContext*, const v1::ForkSessionRequest*, v1::Session*) override;
  grpc::Status UpdateSession(grpc::ServerContext*, const v1::UpdateSessionRequest*, v1::Session*) override;
  grpc::Status CreateSnapshot(grpc::ServerContext*, const v1::CreateSnapshotRequest*, v1::Snapshot*) override;
  grpc::Status GetSnapshot(grpc::ServerContext*, const v1::GetSnapshotRequest*, v1::Snapshot*) override;
  grpc::Status ListSnapshots(grpc::ServerContext*, const v1::ListSnapshotsRequest*,
                             v1::ListSnapshotsResponse*) override;
  grpc::Status DeleteSnapshot(grpc::ServerContext*, const v1::DeleteSnapshotRequest*,
                              google::protobuf::Empty*) override;
  grpc::Status RollbackSession(grpc::ServerContext*, const v1::RollbackSessionRequest*,
                               v1::Session*) override;
  grpc::Status ExportSession(grpc::ServerContext*, const v1::ExportSessionRequest*,
                             grpc::ServerWriter<v1::ExportSessionResponse>*) override;
  grpc::Status ImportSession(grpc::ServerContext*, grpc::ServerReader<v1::ImportSessionRequest>*,
                             v1::Session*) override;
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*, v1::Model*) override;
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse*) override;
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest*, v1::TokenizeResponse*) override;
  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest*,
                          v1::DetokenizeResponse*) override;
  grpc::Status Score(grpc::ServerContext*, const v1::ScoreRequest*, v1::ScoreResponse*) override;
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*, v1::ServerInfo*) override;
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse*) override;

  mutable std::mutex mu_;
  std::map<std::string, std::string> requests_;  // by type, the latest, serialized
  std::string session_id_, authorization_;
  int calls_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A status with one ErrorInfo, and RetryInfo when `retry_seconds` is positive.
grpc::Status RichStatus(grpc::StatusCode code, const std::string& reason, const std::string& message,
                        const std::map<std::string, std::string>& metadata = {}, int retry_seconds = 0);

v1::GenerateResponse PromptInfoEvent(int64_t reused, int64_t prompt);
v1::GenerateResponse DeltaEvent(int64_t position, const std::string& text, std::vector<int32_t> ids);
v1::GenerateResponse FinishEvent(int64_t generated, int64_t position);

}  // namespace weir
