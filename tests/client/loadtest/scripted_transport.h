// ScriptedTransport: a server in virtual time, whose turns a test writes down.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/loadtest/transport.h"
#include "tests/client/loadtest/simulated_loop.h"
#include "weir/v1/server_info.pb.h"

namespace weir::testing {

// Times count from when the turn is started.
struct ScriptedMessage {
  absl::Duration after = {};
  int64_t tokens = 1;
  bool text = true;
};

struct ScriptedTurn {
  std::vector<ScriptedMessage> messages = {};
  absl::Duration end = {};
  absl::Status status = {};
  absl::Duration prompt_info = {};  // when that comes

  // `tokens` messages of one token, the first after `first`; the end comes with the last.
  static ScriptedTurn Even(absl::Duration first, absl::Duration gap, int64_t tokens);
};

// One thread. Counts as a server would.
class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(SimulatedLoop* loop) : loop_(loop) {}

  // By the number of turns before. At first: one token at once.
  std::function<ScriptedTurn(const TurnRequest& request, int64_t number)> turn;
  // How a session's creation ends, by the number of creations before; at first well, at once.
  std::function<absl::Status(int64_t number)> create;
  absl::Status delete_status;       // of all deletions, when not OK
  int busy_deletions = 0;           // so many are answered with ABORTED first
  absl::Status server_info_status;  // when not OK
  absl::Duration call_time;         // of all calls but turns
  v1::ServerInfo info;

  std::vector<TurnRequest> requests;
  std::set<std::string> sessions;
  int64_t in_flight = 0;
  int64_t max_in_flight = 0;
  int64_t created = 0;
  int64_t deleted = 0;

  std::unique_ptr<RunningTurn> StartTurn(TurnRequest request, TurnObserver* observer) override;
  void CreateSession(const std::string& model, const std::string& session, absl::Duration timeout,
                     SessionDone done) override;
  void AppendSession(const std::string& session, TurnPrompt prompt, absl::Duration timeout,
                     SessionDone done) override;
  void GetSession(const std::string& session, absl::Duration timeout, SessionDone done) override;
  void DeleteSession(const std::string& session, absl::Duration timeout, DeleteDone done) override;
  void GetServerInfo(absl::Duration timeout, ServerInfoDone done) override;

 private:
  // What the events of a turn still to come belong to.
  struct State {
    TurnObserver* observer;
    bool ended = false;
  };
  void End(const std::shared_ptr<State>& state, const absl::Status& status);
  void Answer(LoopTask task) { loop_->At(loop_->Now() + call_time, std::move(task)); }

  class Handle final : public RunningTurn {
   public:
    Handle(ScriptedTransport* owner, std::shared_ptr<State> state)
        : owner_(owner), state_(std::move(state)) {}
    void Cancel() override;

   private:
    ScriptedTransport* const owner_;
    const std::shared_ptr<State> state_;
  };

  SimulatedLoop* const loop_;
};

}  // namespace weir::testing
