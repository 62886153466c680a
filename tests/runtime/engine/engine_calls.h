// Calling an Engine from a test's thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/engine/engine.h"
#include "tests/runtime/engine/runner_harness.h"
#include "tests/support/notification.h"

namespace weir::testing {

// Reads one stream to its end on the notifier's thread, as a network reactor would. The notifier may still be
// in the callback when the stream has ended, so what that touches lives as long as it runs.
class Reader {
 public:
  absl::Status Start(Engine* engine, TurnParams params) {
    auto stream = engine->Submit(std::move(params), [weak = std::weak_ptr<State>(state_)] {
      if (const std::shared_ptr<State> state = weak.lock()) state->Pump();
    });
    if (!stream.ok()) return stream.status();
    {
      MutexLock lock(&state_->mu);
      state_->stream = *stream;
    }
    state_->Pump();
    return absl::OkStatus();
  }
  void Cancel() { state_->Stream()->Cancel(); }
  const Collected& Wait() {
    state_->done.Wait();
    return state_->got;
  }

 private:
  struct State {
    std::shared_ptr<TokenStream> Stream() {
      MutexLock lock(&mu);
      return stream;
    }
    void Pump() {
      MutexLock lock(&mu);
      if (stream == nullptr || got.ended()) return;
      while (got.Take(stream.get()))
        if (got.ended()) return done.Notify();
    }
    Mutex mu;
    std::shared_ptr<TokenStream> stream;
    Collected got;
    Notification done;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

template <class T>
absl::StatusOr<T> Await(absl::AnyInvocable<void(Done<T>)> call) {
  absl::StatusOr<T> result = absl::UnknownError("no reply");
  Notification done;
  call([&](absl::StatusOr<T> reply) {
    result = std::move(reply);
    done.Notify();
  });
  done.Wait();
  return result;
}

inline absl::StatusOr<SessionInfo> Create(Engine* engine, const std::string& id) {
  return Await<SessionInfo>([&](Done<SessionInfo> done) {
    Engine::CreateParams params;
    params.id = id;
    engine->CreateSession(params, std::move(done));
  });
}

}  // namespace weir::testing
