#include "client/loadtest/fan_out.h"

#include <utility>

namespace weir {

FanOut::FanOut(int64_t count, int64_t at_once, Operation operation, std::function<bool()> stop,
               LoopTask finished)
    : count_(count),
      at_once_(at_once),
      operation_(std::move(operation)),
      stop_(std::move(stop)),
      finished_(std::move(finished)) {}

void FanOut::Run(int64_t count, int64_t at_once, Operation operation, std::function<bool()> stop,
                 LoopTask finished) {
  Advance(std::shared_ptr<FanOut>(
      new FanOut(count, at_once, std::move(operation), std::move(stop), std::move(finished))));
}

void FanOut::Advance(const std::shared_ptr<FanOut>& self) {
  if (self->advancing_) return;  // the loop below goes on
  self->advancing_ = true;
  while (self->running_ < self->at_once_ && self->next_ < self->count_ && !self->stop_()) {
    ++self->running_;
    self->operation_(self->next_++, [self] {
      --self->running_;
      Advance(self);
    });
  }
  self->advancing_ = false;
  if (self->running_ > 0 || !self->finished_) return;
  LoopTask finished = std::exchange(self->finished_, nullptr);
  finished();
}

}  // namespace weir
