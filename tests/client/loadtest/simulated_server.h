// SimulatedServer: a Transport with a server behind it whose sessions, slots, KV blocks and memory are known
// to the byte and whose time is a SimulatedLoop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/loadtest/loop.h"
#include "client/loadtest/state_shape.h"
#include "client/loadtest/transport.h"
#include "weir/v1/server_info.pb.h"

namespace weir::testing {

struct SimulatedServerOptions {
  std::string model = "m";
  StateShape shape;
  int64_t slots = 8;
  int64_t kv_blocks = 0;
  int64_t context_limit = 0;  // 0: none
  absl::Duration call = absl::Milliseconds(1);
  // A turn takes this for each token of its prompt, then comes a token each `itl` of its position.
  absl::Duration per_prompt_token = absl::Microseconds(10);
  std::function<absl::Duration(int64_t position)> itl = [](int64_t) { return absl::Milliseconds(2); };
  // Of the process, beside the arena, after so many tokens in all: heap, and pages of files.
  std::function<int64_t(int64_t tokens)> heap = [](int64_t) { return int64_t{10} << 20; };
  std::function<int64_t(int64_t tokens)> files = [](int64_t) { return int64_t{5} << 20; };
  // Of one session, beyond what the shape says.
  std::function<int64_t(int64_t position)> session_leak = [](int64_t) { return int64_t{0}; };
  bool tells_anonymous = true;
  // What other clients of the server add to what it says of itself.
  std::function<void(v1::ServerInfo* info)> others = [](v1::ServerInfo*) {};
  // Tokens that come in one message; what is left of a turn comes in a last one.
  int64_t tokens_per_message = 1;
  std::function<std::optional<int64_t>(int64_t tokens)> device = [](int64_t) { return std::nullopt; };
};

class SimulatedServer final : public Transport {
 public:
  SimulatedServer(SimulatedServerOptions options, Loop* loop);

  std::unique_ptr<RunningTurn> StartTurn(TurnRequest request, TurnObserver* observer) override;
  void CreateSession(const std::string& model, const std::string& session, absl::Duration timeout,
                     SessionDone done) override;
  void AppendSession(const std::string& session, TurnPrompt prompt, absl::Duration timeout,
                     SessionDone done) override;
  void GetSession(const std::string& session, absl::Duration timeout, SessionDone done) override;
  void DeleteSession(const std::string& session, absl::Duration timeout, DeleteDone done) override;
  void GetServerInfo(absl::Duration timeout, ServerInfoDone done) override;

  // What tests look at, and change.
  SimulatedServerOptions options;
  struct HeldSession {
    int64_t position = 0;
    bool busy = false;
  };
  std::map<std::string, HeldSession> sessions;
  int64_t tokens = 0;  // computed in all
  int64_t generated = 0;
  int64_t steps = 0;
  int64_t most_at_once = 0;  // turns
  bool lost = false;         // every call fails with UNAVAILABLE
  std::vector<absl::Duration> info_read_at;
  std::vector<int64_t> max_tokens;  // of the turns, in order

 private:
  struct TurnState;
  class Handle;

  absl::Status Refusal(const TurnRequest& request) const;
  int64_t UsedBlocks() const;
  absl::StatusOr<SessionFacts> Facts(const std::string& session) const;
  v1::ServerInfo Info() const;
  void Step(const std::shared_ptr<TurnState>& turn);
  void End(const std::shared_ptr<TurnState>& turn, absl::Status status);
  template <class F>
  void Reply(F reply) {
    loop_->At(loop_->Now() + options.call, std::move(reply));
  }

  Loop* const loop_;
  int64_t running_ = 0;
};

}  // namespace weir::testing
