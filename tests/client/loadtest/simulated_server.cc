#include "tests/client/loadtest/simulated_server.h"

#include <algorithm>
#include <utility>

#include "client/rpc_error.h"
#include "runtime/base/error.h"

namespace weir::testing {
namespace {

// With the reason of client/rpc_error.cc.
absl::Status Gone() {
  return MakeError(absl::StatusCode::kUnavailable, kConnectionLost, "the server is gone");
}

}  // namespace

struct SimulatedServer::TurnState {
  TurnRequest request;
  TurnObserver* observer = nullptr;
  int64_t generated = 0;
  int64_t unsent = 0;
  bool ended = false;
};

class SimulatedServer::Handle final : public RunningTurn {
 public:
  Handle(SimulatedServer* server, std::shared_ptr<TurnState> turn)
      : server_(server), turn_(std::move(turn)) {}
  void Cancel() override {
    server_->loop_->Post(
        [server = server_, turn = turn_] { server->End(turn, absl::CancelledError("cancelled")); });
  }

 private:
  SimulatedServer* const server_;
  const std::shared_ptr<TurnState> turn_;
};

SimulatedServer::SimulatedServer(SimulatedServerOptions with, Loop* loop)
    : options(std::move(with)), loop_(loop) {}

int64_t SimulatedServer::UsedBlocks() const {
  int64_t blocks = 0;
  if (options.shape.paged)
    for (const auto& [id, session] : sessions)
      blocks += (session.position + options.shape.block_tokens - 1) / options.shape.block_tokens;
  return blocks;
}

absl::Status SimulatedServer::Refusal(const TurnRequest& request) const {
  if (lost) return Gone();
  const auto session = sessions.find(request.session);
  if (session == sessions.end())
    return MakeError(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND", "no such session");
  const int64_t now = session->second.position;
  const auto prompt = static_cast<int64_t>(request.prompt.token_ids.size());
  if (options.context_limit > 0 && now + prompt > options.context_limit)
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_FIELD", "prompt: too long for the model");
  if (!options.shape.paged) return absl::OkStatus();
  const int64_t size = options.shape.block_tokens;
  const int64_t needed = (now + prompt + request.max_tokens + size - 1) / size - (now + size - 1) / size;
  if (needed <= options.kv_blocks - UsedBlocks()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED", "no blocks are left");
}

std::unique_ptr<RunningTurn> SimulatedServer::StartTurn(TurnRequest request, TurnObserver* observer) {
  auto turn = std::make_shared<TurnState>();
  turn->request = std::move(request);
  turn->observer = observer;
  max_tokens.push_back(turn->request.max_tokens);
  most_at_once = std::max(most_at_once, ++running_);
  const auto prompt = static_cast<int64_t>(turn->request.prompt.token_ids.size());
  loop_->At(loop_->Now() + options.call + prompt * options.per_prompt_token, [this, turn, prompt] {
    if (turn->ended) return;
    if (absl::Status refused = Refusal(turn->request); !refused.ok()) return End(turn, std::move(refused));
    sessions[turn->request.session].position += prompt;
    tokens += prompt;
    turn->observer->OnPromptInfo(loop_->Now(), prompt, 0);
    Step(turn);
  });
  return std::make_unique<Handle>(this, std::move(turn));
}

void SimulatedServer::Step(const std::shared_ptr<TurnState>& turn) {
  if (turn->ended) return;
  HeldSession& session = sessions[turn->request.session];
  const bool at_limit = options.context_limit > 0 && session.position >= options.context_limit;
  if (turn->generated == turn->request.max_tokens || at_limit) return End(turn, absl::OkStatus());
  loop_->At(loop_->Now() + options.itl(session.position), [this, turn] {
    if (turn->ended) return;
    ++turn->generated;
    ++tokens;
    ++generated;
    ++steps;
    ++sessions[turn->request.session].position;
    if (++turn->unsent == options.tokens_per_message || turn->generated == turn->request.max_tokens)
      turn->observer->OnDelta(loop_->Now(), std::exchange(turn->unsent, 0), true);
    Step(turn);
  });
}

void SimulatedServer::End(const std::shared_ptr<TurnState>& turn, absl::Status status) {
  if (std::exchange(turn->ended, true)) return;
  --running_;
  TurnResult end;
  if (status.ok()) {
    end.prompt_tokens = static_cast<int64_t>(turn->request.prompt.token_ids.size());
    end.generated_tokens = turn->generated;
    end.position = sessions[turn->request.session].position;
  }
  end.status = std::move(status);
  turn->observer->OnEnd(loop_->Now(), end);
}

void SimulatedServer::CreateSession(const std::string& model, const std::string& session, absl::Duration,
                                    SessionDone done) {
  Reply([this, model, session, done = std::move(done)]() mutable {
    if (lost) return done(loop_->Now(), Gone());
    if (model != options.model) return done(loop_->Now(), absl::NotFoundError("no such model"));
    if (static_cast<int64_t>(sessions.size()) >= options.slots)
      return done(loop_->Now(), MakeError(absl::StatusCode::kResourceExhausted, "SESSION_CAPACITY_EXHAUSTED",
                                          "no slot is free"));
    sessions.emplace(session, HeldSession());
    done(loop_->Now(), Facts(session));
  });
}

void SimulatedServer::AppendSession(const std::string& session, TurnPrompt, absl::Duration,
                                    SessionDone done) {
  Reply([this, session, done = std::move(done)]() mutable { done(loop_->Now(), Facts(session)); });
}

void SimulatedServer::GetSession(const std::string& session, absl::Duration, SessionDone done) {
  Reply([this, session, done = std::move(done)]() mutable { done(loop_->Now(), Facts(session)); });
}

void SimulatedServer::DeleteSession(const std::string& session, absl::Duration, DeleteDone done) {
  Reply([this, session, done = std::move(done)]() mutable {
    if (lost) return done(loop_->Now(), Gone());
    const auto it = sessions.find(session);
    if (it == sessions.end()) return done(loop_->Now(), absl::NotFoundError("no such session"));
    if (it->second.busy) return done(loop_->Now(), absl::AbortedError("a turn runs"));
    sessions.erase(it);
    done(loop_->Now(), absl::OkStatus());
  });
}

absl::StatusOr<SessionFacts> SimulatedServer::Facts(const std::string& session) const {
  if (lost) return Gone();
  const auto it = sessions.find(session);
  if (it == sessions.end()) return absl::NotFoundError("no such session");
  const int64_t position = it->second.position;
  return SessionFacts{session, position, options.shape.BytesAt(position) + options.session_leak(position),
                      it->second.busy};
}

void SimulatedServer::GetServerInfo(absl::Duration, ServerInfoDone done) {
  Reply([this, done = std::move(done)]() mutable {
    info_read_at.push_back(loop_->Now());
    if (lost) return done(loop_->Now(), Gone(), v1::ServerInfo());
    done(loop_->Now(), absl::OkStatus(), Info());
  });
}

v1::ServerInfo SimulatedServer::Info() const {
  v1::ServerInfo info;
  v1::ModelUse* use = info.add_models();
  use->mutable_model()->set_name("models/" + options.model);
  use->mutable_model()->mutable_state()->set_fixed_bytes(options.shape.fixed_bytes);
  use->mutable_model()->mutable_state()->set_block_bytes(options.shape.block_bytes);
  const auto used = static_cast<int64_t>(sessions.size());
  use->set_slots_total(options.slots);
  use->set_slots_free(options.slots - used);
  use->set_kv_blocks_total(options.kv_blocks);
  use->set_kv_blocks_free(options.kv_blocks - UsedBlocks());
  use->set_sessions(used);
  use->set_prefilled_tokens(tokens - generated);
  use->set_prompt_tokens(tokens - generated);
  use->set_generated_tokens(generated);
  use->set_steps(steps);
  const int64_t anonymous =
      options.heap(tokens) + used * options.shape.fixed_bytes + UsedBlocks() * options.shape.block_bytes;
  const int64_t resident = anonymous + options.files(tokens);
  info.set_process_resident_bytes(resident);
  if (options.tells_anonymous) {
    info.set_process_anonymous_bytes(anonymous);
    info.set_process_proportional_bytes(resident - options.files(tokens) / 2);
  }
  if (const auto device = options.device(tokens)) info.set_device_used_bytes(*device);
  options.others(&info);
  return info;
}

}  // namespace weir::testing
