// WeirClient: the C++ client of weir.v1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cancel_token.h"
#include "client/tls.h"
#include "grpcpp/channel.h"
#include "runtime/base/function_ref.h"
#include "weir/v1/generation.pb.h"
#include "weir/v1/models.pb.h"
#include "weir/v1/server_info.pb.h"
#include "weir/v1/sessions.pb.h"

namespace weir {

struct ConnectOptions {
  // How long Connect waits; a refused connection is reported at once.
  absl::Duration timeout = absl::Seconds(5);
  TlsOptions tls;
  // Sent with every call as `authorization: Bearer KEY`. Without TLS whoever is on the way can read it.
  std::string api_key;
  // Limit of each call, streams included.
  absl::Duration call_timeout = absl::InfiniteDuration();
  // Ends Connect early, with CANCELLED.
  CancelToken* cancel = nullptr;
};

struct GenerateResult {
  v1::PromptInfo prompt_info;
  v1::Finish finish;
  // From sending the request to the first delta that carries a token; infinite when none did.
  absl::Duration time_to_first_token = absl::InfiniteDuration();
  absl::Duration elapsed;
};

enum class Health { kUnknown, kServing, kNotServing };

// Copyable handle on one connection; every method blocks its thread and may be called from any thread, also
// at the same time.
//
// Errors carry the server's code, reason, metadata and retry advice: see GetErrorDetails() of
// runtime/base/error.h, and client/rpc_error.h for the reasons that arise on this side.
class WeirClient {
 public:
  // `address` is HOST:PORT, HOST (port 7070), [IPV6]:PORT or unix:PATH; INVALID_ARGUMENT (INVALID_ADDRESS)
  // for anything else, and for files that are not right. UNAVAILABLE when no gRPC server answers there in
  // time: UNREACHABLE, or one of the TLS_… reasons of rpc_error.h.
  static absl::StatusOr<WeirClient> Connect(std::string_view address, const ConnectOptions& options = {});

  using OnDelta = FunctionRef<void(const v1::Delta&)>;
  using OnEvent = FunctionRef<void(const v1::GenerateResponse&)>;

  // Streams a turn: `on_delta` runs on the calling thread as each delta arrives. After an error, what was
  // handed over before it stays valid. DATA_LOSS when the positions have a gap. Only Cancel() ends a turn
  // early: it may be called in the callback.
  absl::StatusOr<GenerateResult> Generate(const v1::GenerateRequest& request, OnDelta on_delta,
                                          CancelToken* cancel = nullptr) const;
  // The same with every event of the stream, checked before it is handed over.
  absl::StatusOr<GenerateResult> GenerateEvents(const v1::GenerateRequest& request, OnEvent on_event,
                                                CancelToken* cancel = nullptr) const;

  // An empty session_id is filled here, so that routers see the name on the first call: with 128 random bits,
  // or with the request_id where there is one, so that a repeat is the same request.
  absl::StatusOr<v1::Session> CreateSession(v1::CreateSessionRequest request,
                                            CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::Session> GetSession(const v1::GetSessionRequest& request,
                                         CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const v1::ListSessionsRequest& request,
                                                        CancelToken* cancel = nullptr) const;
  absl::Status DeleteSession(const v1::DeleteSessionRequest& request, CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::AppendSessionResponse> AppendSession(const v1::AppendSessionRequest& request,
                                                          CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::Session> ForkSession(const v1::ForkSessionRequest& request,
                                          CancelToken* cancel = nullptr) const;

  absl::StatusOr<v1::Session> UpdateSession(const v1::UpdateSessionRequest& request,
                                            CancelToken* cancel = nullptr) const;

  absl::StatusOr<v1::Snapshot> CreateSnapshot(const v1::CreateSnapshotRequest& request,
                                              CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::Snapshot> GetSnapshot(const v1::GetSnapshotRequest& request,
                                           CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::ListSnapshotsResponse> ListSnapshots(const v1::ListSnapshotsRequest& request,
                                                          CancelToken* cancel = nullptr) const;
  absl::Status DeleteSnapshot(const v1::DeleteSnapshotRequest& request, CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::Session> RollbackSession(const v1::RollbackSessionRequest& request,
                                              CancelToken* cancel = nullptr) const;

  // `on_data` gets the file piece by piece on the calling thread; an error of its own ends the call. The
  // session as it was exported; DATA_LOSS when fewer bytes came than were announced.
  using OnData = FunctionRef<absl::Status(std::string_view)>;
  absl::StatusOr<v1::Session> ExportSession(const v1::ExportSessionRequest& request, OnData on_data,
                                            CancelToken* cancel = nullptr) const;
  // `start` has total_bytes, and session_id and session where wanted; an empty session_id is filled as by
  // CreateSession. `next_data` gives the file piece by piece, at most 1 MiB each and "" at its end; an error
  // of its own ends the call.
  using NextData = FunctionRef<absl::StatusOr<std::string>()>;
  absl::StatusOr<v1::Session> ImportSession(v1::ImportSessionRequest start, NextData next_data,
                                            CancelToken* cancel = nullptr) const;

  absl::StatusOr<v1::Model> GetModel(const v1::GetModelRequest& request, CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::ListModelsResponse> ListModels(const v1::ListModelsRequest& request,
                                                    CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    CancelToken* cancel = nullptr) const;
  absl::StatusOr<v1::ScoreResponse> Score(const v1::ScoreRequest& request,
                                          CancelToken* cancel = nullptr) const;

  absl::StatusOr<v1::ServerInfo> GetServerInfo(CancelToken* cancel = nullptr) const;
  // grpc.health.v1 of one service; "" is the server as a whole.
  absl::StatusOr<Health> CheckHealth(std::string_view service = "", CancelToken* cancel = nullptr) const;

  const std::string& address() const;

 private:
  struct Connection;
  explicit WeirClient(std::shared_ptr<const Connection> connection);

  std::shared_ptr<const Connection> connection_;
};

// `sessions/{id}` from either form; `models/{id}` likewise.
std::string SessionResource(std::string_view id_or_name);
std::string ModelResource(std::string_view id_or_name);
// `sessions/{session}/snapshots/{id}` from an id or the whole name.
std::string SnapshotResource(std::string_view session, std::string_view id_or_name);

}  // namespace weir
