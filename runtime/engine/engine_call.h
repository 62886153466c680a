// How the engine's session calls reach its thread and come back. For the engine's own sources.
#pragma once

#include <memory>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/notifier.h"
#include "runtime/engine/session_table.h"

namespace weir {

inline absl::Status Draining() {
  return MakeError(absl::StatusCode::kUnavailable, "DRAINING", "the server is shutting down; try another one",
                   {}, absl::Seconds(1));
}

// Counted as any other refusal, although it never comes to the engine's thread.
template <class T>
void RefuseAtOnce(const absl::Status& refusal, EngineMetrics* metrics, Done<T>* done) {
  metrics->rejections.AddIfOfCapacity(refusal);
  (*done)(refusal);
}

template <class T>
void Engine::Reply(const std::shared_ptr<Done<T>>& done, absl::StatusOr<T> result) {
  wake_list_->replies.push_back([done, result = std::move(result)]() mutable { (*done)(std::move(result)); });
}

template <class T>
void Engine::Call(Done<T> done, absl::AnyInvocable<absl::StatusOr<T>()> work) {
  auto shared_done = std::make_shared<Done<T>>(std::move(done));
  const bool posted = Post([this, shared_done, work = std::move(work)]() mutable {
    absl::StatusOr<T> result = lost_.ok() ? work() : absl::StatusOr<T>(lost_);
    if (!result.ok()) metrics_.rejections.AddIfOfCapacity(result.status());
    Reply<T>(shared_done, std::move(result));
  });
  if (!posted) RefuseAtOnce(Stopped(), &metrics_, shared_done.get());
}

template <class T, class Start>
void Engine::CallInPieces(Histogram* duration, Done<T> done, Start start) {
  auto shared_done = std::make_shared<Done<T>>(std::move(done));
  const bool posted = Post([this, duration, shared_done, start = std::move(start)]() mutable {
    if (!lost_.ok()) return Reply<T>(shared_done, lost_);
    const absl::Time begin = options_.now();
    absl::StatusOr<PiecewiseWork<T>> started = start();
    if (!started.ok()) {
      metrics_.rejections.AddIfOfCapacity(started.status());
      return Reply<T>(shared_done, started.status());
    }
    auto work = std::make_shared<PiecewiseWork<T>>(*std::move(started));
    copies_.push_back(
        {[this, duration, begin, shared_done, work] {
           const absl::StatusOr<bool> copied = work->step();
           if (copied.ok() && !*copied) return false;
           if (copied.ok()) duration->Observe(absl::ToDoubleSeconds(options_.now() - begin));
           absl::StatusOr<T> answer =
               copied.ok() ? work->finish(MonotonicNow()) : absl::StatusOr<T>(LoseDevice(copied.status()));
           work->claimed.reset();
           // The reply ends the work, so that the notifier's thread frees its host memory.
           wake_list_->replies.push_back([shared_done, work, result = std::move(answer)]() mutable {
             work.reset();
             (*shared_done)(std::move(result));
           });
           return true;
         },
         [this, shared_done](const absl::Status& why) { Reply<T>(shared_done, why); }});
  });
  if (!posted) RefuseAtOnce(Stopped(), &metrics_, shared_done.get());
}

}  // namespace weir
