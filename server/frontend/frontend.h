// Frontend: validates, tokenizes and submits. Every gateway goes through it; it knows none of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/loaded_model.h"
#include "runtime/engine/engine.h"
#include "server/frontend/call_record.h"
#include "server/frontend/executor.h"
#include "server/frontend/frontend_metrics.h"
#include "server/frontend/request_log.h"
#include "server/frontend/turn_client.h"
#include "server/frontend/violations.h"
#include "weir/v1/generation.pb.h"
#include "weir/v1/models.pb.h"
#include "weir/v1/sessions.pb.h"

namespace weir {

struct FrontendOptions {
  int64_t max_text_bytes = int64_t{4} << 20;  // of one prompt
  int64_t max_score_tokens = 262'144;
  // Stock clients refuse messages above 4 MiB.
  int64_t max_reply_bytes = (int64_t{4} << 20) - 4096;
  int compute_threads = 0;  // as GetServerInfo shows them
  Executor::Limits executor;
  CallLog calls;
};

// Owned by the server; its methods may be called from any thread and return at once. `engine` outlives it.
class Frontend {
 public:
  // models[i] is what the engine calls model i.
  Frontend(Engine* engine, std::vector<LoadedModel> models, const FrontendOptions& options);

  // `request` lives until client->OnStarted or OnRefused has returned.
  void Generate(const v1::GenerateRequest& request, CallInfo call, std::shared_ptr<TurnClient> client);
  void Append(const v1::AppendSessionRequest& request, CallInfo call, std::shared_ptr<TurnClient> client);
  // An Append with a request_id: once begun it goes on whatever becomes of the caller. `reply` comes on any
  // thread.
  void AppendOnce(const v1::AppendSessionRequest& request, const CallInfo& call,
                  Reply<v1::AppendSessionResponse> reply);
  void Score(const v1::ScoreRequest& request, CallInfo call, std::shared_ptr<TurnClient> client);

  // `name` is `models/{model}`, or empty when there is one model. NOT_FOUND for a well-formed name of none.
  absl::StatusOr<int> ResolveModel(const std::string& name, std::string_view field) const;
  absl::StatusOr<std::vector<int32_t>> Tokenize(const LoadedModel& model, const v1::Prompt& prompt,
                                                bool continuation, absl::Time deadline,
                                                const std::atomic<bool>& cancelled) const;

  // Turns that are being tokenized, wait, or run.
  int64_t turns() const { return turns_->load(std::memory_order_acquire); }
  // Runs what is being tokenized, then refuses.
  void Stop() { executor_.Stop(); }

  Engine& engine() const { return *engine_; }
  // From now on clients are told to go elsewhere, though new work is taken until the engine drains. Any
  // thread.
  void Leave() { leaving_.store(true, std::memory_order_release); }
  bool leaving() const { return leaving_.load(std::memory_order_acquire) || engine_->draining(); }
  Executor& executor() { return executor_; }
  RequestLog& request_log() { return request_log_; }
  const std::vector<LoadedModel>& models() const { return models_; }
  const FrontendOptions& options() const { return options_; }
  const FrontendMetrics& metrics() const { return metrics_; }

 private:
  // One turn of any kind; the pointers lead into the client's request, null where it has no such part.
  struct TurnRequest {
    const std::string* model = nullptr;
    const std::string* session = nullptr;
    std::string_view session_field = "session";
    const v1::Prompt* prompt = nullptr;
    const v1::SamplingParams* sampling = nullptr;  // these three together
    const v1::StopConditions* stop = nullptr;
    const v1::OutputOptions* output = nullptr;
    const std::string* etag = nullptr;
    std::optional<int64_t> expected_position;
    bool score = false;
  };
  struct Prepared {
    TurnParams params;
    StartedTurn turn;
  };

  void Start(TurnRequest request, CallInfo call, std::shared_ptr<TurnClient> client);
  // Counts the refusal and passes it on.
  void Refuse(const TurnRequest& request, const std::optional<SessionInfo>& session, absl::Status status,
              TurnClient* client);
  void LookUpSession(std::string id, int attempts, TurnTicket ticket, TurnRequest request, CallInfo call,
                     std::shared_ptr<TurnClient> client);
  void PostPrepare(std::optional<SessionInfo> session, TurnTicket ticket, TurnRequest request, CallInfo call,
                   std::shared_ptr<TurnClient> client);
  absl::StatusOr<Prepared> Prepare(const TurnRequest& request, const std::optional<SessionInfo>& session,
                                   const CallInfo& call, const TurnClient& client) const;
  // What the key allows, as RESOURCE_EXHAUSTED (TOKEN_LIMIT_EXCEEDED); lowers a max_tokens that is a default.
  absl::Status LimitTokens(const TurnRequest& request, const CallInfo& call, TurnParams* params) const;
  // Everything but the tokens; the model's index through `prepared`.
  absl::Status Validate(const TurnRequest& request, const std::optional<SessionInfo>& session,
                        const CallInfo& call, Prepared* prepared) const;
  absl::Status CheckTokens(const TurnRequest& request, const std::optional<SessionInfo>& session,
                           const Prepared& prepared) const;
  absl::StatusOr<TurnTicket> TakeTicket() const;

  Engine* const engine_;
  const std::vector<LoadedModel> models_;
  const FrontendOptions options_;
  std::atomic<bool> leaving_{false};
  int64_t max_turns_ = 0;  // all slots and all places in line
  mutable FrontendMetrics metrics_;
  const std::shared_ptr<std::atomic<int64_t>> turns_ = std::make_shared<std::atomic<int64_t>>(0);
  RequestLog request_log_;
  Executor executor_;  // last, so that its threads end first
};

// OK, CANCELLED or DEADLINE_EXCEEDED.
absl::Status CheckAlive(bool cancelled, absl::Time deadline, std::string_view what);

// Adds a violation when `hint` (`x-session-id` metadata) is there and does not name session `id`.
void CheckSessionHint(std::string_view hint, std::string_view id, FieldViolations* violations);

}  // namespace weir
