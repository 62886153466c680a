// Transport: how a load test speaks to a server; over gRPC (grpc_transport.h), or by a script in tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

namespace v1 {
class ServerInfo;
}

// Either text or token ids, or neither: a session then goes on from where it stands.
struct TurnPrompt {
  std::string text;
  std::vector<int32_t> token_ids;
};

struct TurnRequest {
  std::string model;    // its id, without models/; may be empty with a session
  std::string session;  // its id, without sessions/; empty: the state lives for this turn only
  TurnPrompt prompt;
  int64_t max_tokens = 1;
  bool ignore_eos = true;  // so that exactly max_tokens come
  uint64_t seed = 0;       // of sampling
  absl::Duration timeout = absl::InfiniteDuration();
};

// What a turn's last event says.
struct TurnResult {
  // As FromGrpc() of client/rpc_error.h makes it, with reason and retry advice where GetErrorDetails() finds
  // them. DATA_LOSS when the stream was not what the contract says. OK only after the finish message.
  absl::Status status;
  // Of the finish message; 0 without one.
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t position = 0;  // of the session after the turn
};

// Gets one turn's events on the Loop, in order. `at` is the Loop's time when the message arrived, stamped
// before anything was done with it; it is at most Now() and never goes back within a turn.
class TurnObserver {
 public:
  virtual ~TurnObserver() = default;
  virtual void OnPromptInfo(absl::Duration at, int64_t prompt_tokens, int64_t reused_tokens) = 0;
  // `num_tokens` may be 0, and text may be missing although there are tokens: the server holds back what is
  // not a whole character yet.
  virtual void OnDelta(absl::Duration at, int64_t num_tokens, bool has_text) = 0;
  // Once, the last event; the observer may be destroyed in it.
  virtual void OnEnd(absl::Duration at, const TurnResult& end) = 0;
};

// A turn that was started. Dropping it neither ends the turn nor its events.
class RunningTurn {
 public:
  virtual ~RunningTurn() = default;
  // Asks the server to end the turn; OnEnd comes with CANCELLED, or as the turn ended just before. Without
  // effect after OnEnd. On the Loop.
  virtual void Cancel() = 0;
};

struct SessionFacts {
  std::string id;  // without sessions/
  int64_t position = 0;
  int64_t state_bytes = 0;
  bool busy = false;
};

// `at` as in TurnObserver.
using SessionDone = absl::AnyInvocable<void(absl::Duration at, const absl::StatusOr<SessionFacts>& session)>;
using DeleteDone = absl::AnyInvocable<void(absl::Duration at, const absl::Status& status)>;
// `info` is empty unless the status is OK.
using ServerInfoDone =
    absl::AnyInvocable<void(absl::Duration at, const absl::Status& status, const v1::ServerInfo& info)>;

// All methods are called on the Loop's thread and return without waiting; what is handed over (`done`,
// observers) is called later, on the Loop, never from within the call. Each `done` is called once, also when
// the server is lost. Nothing is tried a second time.
//
// Destroying a transport cancels what still runs; after that nothing is called any more.
class Transport {
 public:
  virtual ~Transport() = default;

  // `observer` has to live until its OnEnd.
  virtual std::unique_ptr<RunningTurn> StartTurn(TurnRequest request, TurnObserver* observer) = 0;

  // `session` below is an id without sessions/. `timeout` is the call's limit; infinite: none.
  virtual void CreateSession(const std::string& model, const std::string& session, absl::Duration timeout,
                             SessionDone done) = 0;
  // The position afterwards is in the facts.
  virtual void AppendSession(const std::string& session, TurnPrompt prompt, absl::Duration timeout,
                             SessionDone done) = 0;
  virtual void GetSession(const std::string& session, absl::Duration timeout, SessionDone done) = 0;
  virtual void DeleteSession(const std::string& session, absl::Duration timeout, DeleteDone done) = 0;
  virtual void GetServerInfo(absl::Duration timeout, ServerInfoDone done) = 0;
};

}  // namespace weir
