// What a gateway and the frontend tell each other about one turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/loaded_model.h"
#include "runtime/engine/token_stream.h"

namespace weir {

// What every call carries beside its request.
struct CallInfo {
  std::string owner;  // the API key's name, whose sessions are meant; empty: no keys are asked for
  int64_t max_request_tokens = 0;  // of prompt and output together; 0: any number
  std::string session_hint;        // `x-session-id` metadata; empty: not sent
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time arrival = absl::InfinitePast();  // InfinitePast: nobody looked
  std::string request_id;                     // `x-request-id` metadata, or made up
  std::string trace_id;                       // of `traceparent` metadata; empty: none
};

// A claim on one of the places for turns that are being tokenized, wait, or run; given back once.
class TurnTicket {
 public:
  TurnTicket() = default;
  explicit TurnTicket(std::shared_ptr<std::atomic<int64_t>> taken) : taken_(std::move(taken)) {}
  TurnTicket(TurnTicket&&) noexcept = default;
  TurnTicket& operator=(TurnTicket&& other) noexcept {
    Release();
    taken_ = std::move(other.taken_);
    return *this;
  }
  ~TurnTicket() { Release(); }
  void Release() {
    if (taken_) taken_->fetch_sub(1, std::memory_order_acq_rel);
    taken_.reset();
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> taken_;
};

// A turn that the engine has taken, and what is needed to word its answer.
struct StartedTurn {
  std::shared_ptr<TokenStream> stream;
  const LoadedModel* model = nullptr;
  std::string session;            // id; empty without one
  bool session_was_empty = true;  // before this turn
  uint64_t seed = 0;
  std::vector<std::string> stop_strings;
  int64_t max_tokens = 0;
  absl::Duration max_time = absl::InfiniteDuration();
  std::vector<int32_t> prompt;  // Score only
  TurnTicket ticket;            // to be released with the stream's last chunk
};

// One RPC on the gateway's side. Kept alive by the shared_ptr that the frontend holds until OnStarted or
// OnRefused.
class TurnClient {
 public:
  virtual ~TurnClient() = default;
  // Turns true when the caller has gone or its deadline has passed. Looked at on any thread.
  virtual const std::atomic<bool>& cancelled() const = 0;
  // Exactly one of these two, once; possibly before the frontend's call returns.
  virtual void OnStarted(StartedTurn turn) = 0;
  virtual void OnRefused(absl::Status status) = 0;
  // Something waits in the stream; may come before OnStarted. Notifier's thread: must not block.
  virtual void OnReadable() = 0;
};

}  // namespace weir
