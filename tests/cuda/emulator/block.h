// The block that runs: its threads take turns on one OS thread, and wait for each other at barriers and in
// warps.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <unordered_set>

#include "tests/cuda/emulator/device_thread.h"
#include "tests/cuda/emulator/ready_queue.h"

namespace weir::emulator {

// Under the API's lock, as all of the emulator but options and reports.
class Block {
 public:
  static Block& Get();

  void BeginGrid(const void* kernel);
  // False when the block was abandoned.
  bool Run(const KernelCall& call, uint3 index);

  int Barrier(BarrierVote vote, int predicate, Site site);
  void Rendezvous(unsigned mask, void* mine, WarpFunction function, bool orders_memory, Site site);
  unsigned ActiveMask() const {
    return warps_[current_thread->warp].exist & ~warps_[current_thread->warp].exited;
  }
  [[noreturn]] void Abandon();
  void Fence() { fenced_.insert(serial_); }

  // "kernel K block (x,y,z) thread (x,y,z)", or empty while host code runs.
  std::string DescribeCurrentThread() const;
  std::string KernelName() const;

  // Of the block, from 1 on through the process, and of the barriers that it has passed.
  uint32_t serial() const { return serial_; }
  uint32_t first_serial_of_grid() const { return grid_serial_; }
  uint32_t barriers_passed() const { return barriers_passed_; }
  bool Fenced(uint32_t serial) const { return fenced_.count(serial) > 0; }
  // A warp operation's function runs: its accesses to the lanes' variables are the emulator's own.
  bool in_warp_function() const { return in_warp_function_; }
  bool IsParameter(const void* address) const;
  bool IsStack(const void* address) const { return address >= stacks_ && address < stacks_end_; }
  bool IsStackGuard(const void* address) const;
  static bool OwnsStack(const DeviceThread& thread, const void* address);
  uint64_t blocks_run() const { return blocks_run_; }
  std::mt19937_64& random() { return random_; }

 private:
  struct Warp {
    unsigned arrived = 0, exist = 0, exited = 0;
    std::array<DeviceThread*, kWarpLanes> lanes{};
  };
  // What the threads at the barrier have said so far; the last result is read by each as it leaves.
  struct BarrierState {
    unsigned waiting = 0, first_thread = 0;
    Site site;
    BarrierVote vote = BarrierVote::kNone;
    bool any = false, all = true;
    int count = 0, result = 0;
  };

  Block();
  void StartThreads(dim3 size);
  static void ThreadMain();
  void FinishThread(DeviceThread& thread);
  DeviceThread* NextThread();
  void SwitchTo(DeviceThread* from, DeviceThread* to, bool ends);  // null: the host
  void Wait();
  void ReleaseBarrierIfComplete();
  void CheckMask(const Warp& warp, unsigned mask, Site site) const;
  unsigned WaitingWith(const Warp& warp, unsigned mask, WarpFunction function, Site site) const;
  void Complete(Warp& warp, unsigned mask, bool orders_memory);
  static void MergeClocks(Warp& warp, unsigned mask);
  void ReportDeadlock() const;

  char* stacks_ = nullptr;
  char* stacks_end_ = nullptr;
  std::unique_ptr<DeviceThread[]> threads_;
  std::array<Warp, kMaxBlockThreads / kWarpLanes> warps_;
  ReadyQueue ready_;
  Fiber host_;
  BarrierState barrier_;
  const KernelCall* call_ = nullptr;
  const void* kernel_ = nullptr;
  unsigned num_threads_ = 0, num_done_ = 0;
  bool abandoned_ = false;
  bool in_warp_function_ = false;
  uint32_t serial_ = 0, grid_serial_ = 1, barriers_passed_ = 0;
  uint64_t blocks_run_ = 0;
  std::unordered_set<uint32_t> fenced_;  // blocks of this grid that called __threadfence
  std::mt19937_64 random_;
};

}  // namespace weir::emulator
