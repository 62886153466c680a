// FanOut: the same call for many, so many at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "client/loadtest/loop.h"

namespace weir {

// On the Loop's thread.
class FanOut {
 public:
  // Has to call `done` once, in itself or later; nothing keeps the FanOut's caller alive meanwhile.
  using Operation = std::function<void(int64_t index, std::function<void()> done)>;

  // Calls `operation` for 0 to count - 1, in order, at most `at_once` of them unfinished; then `finished`, in
  // the last one's `done` or, where there was nothing to do, in itself. When `stop` says so, no further one
  // is begun.
  static void Run(int64_t count, int64_t at_once, Operation operation, std::function<bool()> stop,
                  LoopTask finished);

 private:
  FanOut(int64_t count, int64_t at_once, Operation operation, std::function<bool()> stop, LoopTask finished);
  static void Advance(const std::shared_ptr<FanOut>& self);

  const int64_t count_, at_once_;
  const Operation operation_;
  const std::function<bool()> stop_;
  LoopTask finished_;
  int64_t next_ = 0, running_ = 0;
  bool advancing_ = false;
};

}  // namespace weir
