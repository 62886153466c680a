#include "tests/client/loadtest/scripted_transport.h"

#include <algorithm>

namespace weir::testing {

ScriptedTurn ScriptedTurn::Even(absl::Duration first, absl::Duration gap, int64_t tokens) {
  ScriptedTurn turn;
  for (int64_t i = 0; i < tokens; ++i) turn.messages.push_back({.after = first + i * gap});
  turn.end = turn.messages.back().after;
  return turn;
}

std::unique_ptr<RunningTurn> ScriptedTransport::StartTurn(TurnRequest request, TurnObserver* observer) {
  ScriptedTurn script = ScriptedTurn::Even({}, {}, 1);
  if (turn) script = turn(request, static_cast<int64_t>(requests.size()));
  const auto prompt_tokens =
      static_cast<int64_t>(request.prompt.token_ids.size() + request.prompt.text.size());
  requests.push_back(std::move(request));
  max_in_flight = std::max(max_in_flight, ++in_flight);
  const auto state = std::make_shared<State>(State{observer});
  const absl::Duration start = loop_->Now();
  loop_->At(start + script.prompt_info, [this, state, prompt_tokens] {
    if (!state->ended) state->observer->OnPromptInfo(loop_->Now(), prompt_tokens, 0);
  });
  for (const ScriptedMessage& message : script.messages)
    loop_->At(start + message.after, [this, state, message] {
      if (!state->ended) state->observer->OnDelta(loop_->Now(), message.tokens, message.text);
    });
  loop_->At(start + script.end, [this, state, status = script.status] { End(state, status); });
  return std::make_unique<Handle>(this, state);
}

void ScriptedTransport::End(const std::shared_ptr<State>& state, const absl::Status& status) {
  if (std::exchange(state->ended, true)) return;
  --in_flight;
  state->observer->OnEnd(loop_->Now(), {.status = status});
}

void ScriptedTransport::Handle::Cancel() {
  owner_->loop_->Post(
      [owner = owner_, state = state_] { owner->End(state, absl::CancelledError("cancelled")); });
}

void ScriptedTransport::CreateSession(const std::string& /*model*/, const std::string& session,
                                      absl::Duration /*timeout*/, SessionDone done) {
  const absl::Status status = create ? create(created) : absl::OkStatus();
  ++created;
  if (status.ok()) sessions.insert(session);
  Answer([this, session, status, done = std::move(done)]() mutable {
    if (status.ok())
      done(loop_->Now(), SessionFacts{.id = session});
    else
      done(loop_->Now(), status);
  });
}

void ScriptedTransport::AppendSession(const std::string& session, TurnPrompt /*prompt*/,
                                      absl::Duration timeout, SessionDone done) {
  GetSession(session, timeout, std::move(done));
}

void ScriptedTransport::GetSession(const std::string& session, absl::Duration /*timeout*/, SessionDone done) {
  Answer(
      [this, session, done = std::move(done)]() mutable { done(loop_->Now(), SessionFacts{.id = session}); });
}

void ScriptedTransport::DeleteSession(const std::string& session, absl::Duration /*timeout*/,
                                      DeleteDone done) {
  absl::Status status = delete_status;
  if (status.ok() && busy_deletions > 0) {
    --busy_deletions;
    status = absl::AbortedError("a turn runs");
  }
  if (status.ok()) {
    ++deleted;
    status = sessions.erase(session) > 0 ? absl::OkStatus() : absl::NotFoundError("no such session");
  }
  Answer([this, status, done = std::move(done)]() mutable { done(loop_->Now(), status); });
}

void ScriptedTransport::GetServerInfo(absl::Duration /*timeout*/, ServerInfoDone done) {
  Answer([this, done = std::move(done)]() mutable { done(loop_->Now(), server_info_status, info); });
}

}  // namespace weir::testing
