// The device threads that can run, in the order that the schedule gives them.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <utility>

#include "tests/cuda/emulator/device_thread.h"
#include "tests/cuda/emulator/emulator.h"

namespace weir::emulator {

class ReadyQueue {
 public:
  void Clear() { first_ = last_ = 0; }
  bool empty() const { return first_ == last_; }
  void Push(unsigned thread) { At(last_++) = static_cast<uint16_t>(thread); }
  unsigned Pop(Schedule schedule, std::mt19937_64& random) {
    // Who became ready last runs on ahead of the others.
    if (schedule == Schedule::kGreedyFirstWarp || schedule == Schedule::kGreedyLastWarp) return At(--last_);
    if (schedule == Schedule::kRandom)
      std::swap(At(first_), At(first_ + static_cast<unsigned>(random() % (last_ - first_))));
    return At(first_++);
  }

 private:
  uint16_t& At(unsigned i) { return threads_[i % threads_.size()]; }

  std::array<uint16_t, 2 * kMaxBlockThreads> threads_;  // a ring: each thread is in it once at most
  unsigned first_ = 0, last_ = 0;
};

}  // namespace weir::emulator
