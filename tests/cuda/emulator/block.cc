#include "tests/cuda/emulator/block.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/sanitizer.h"
#include "tests/cuda/emulator/symbolize.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace weir::emulator {

constinit thread_local DeviceThread* current_thread = nullptr;

namespace {

constexpr size_t kStackBytes = kAddressSanitizer ? 256 << 10 : 128 << 10;
constexpr size_t kGuardBytes = 4096;
constexpr size_t kStackStride = kStackBytes + kGuardBytes;  // a guard page, then the stack above it

}  // namespace

Block& Block::Get() {
  static Block* const block = new Block;
  return *block;
}

Block::Block() : threads_(new DeviceThread[kMaxBlockThreads]) {
  void* const stacks = mmap(nullptr, kStackStride * kMaxBlockThreads, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    fmt::print(stderr, "CUDA emulator: no address space for the threads' stacks\n");
    std::abort();
  }
  stacks_ = static_cast<char*>(stacks);
  stacks_end_ = stacks_ + kStackStride * kMaxBlockThreads;
  for (size_t i = 0; i < kMaxBlockThreads; ++i) {
    mprotect(stacks_ + i * kStackStride, kGuardBytes, PROT_NONE);
    threads_[i].stack = stacks_ + i * kStackStride + kGuardBytes;
  }
}

bool Block::IsStackGuard(const void* address) const {
  return IsStack(address) &&
         static_cast<size_t>(static_cast<const char*>(address) - stacks_) % kStackStride < kGuardBytes;
}

bool Block::OwnsStack(const DeviceThread& thread, const void* address) {
  return address >= thread.stack && address < thread.stack + kStackBytes;
}

bool Block::IsParameter(const void* address) const {
  if (call_ == nullptr) return false;
  const auto* const first = static_cast<const char*>(call_->parameters.get());
  return address >= first && address < first + call_->bytes;
}

std::string Block::KernelName() const { return kernel_ == nullptr ? "" : FunctionAt(kernel_); }

std::string Block::DescribeCurrentThread() const {
  if (current_thread == nullptr) return "";
  const uint3 t = current_thread->index;
  return fmt::format("kernel {} block ({},{},{}) thread ({},{},{})", KernelName(), blockIdx.x, blockIdx.y,
                     blockIdx.z, t.x, t.y, t.z);
}

void Block::BeginGrid(const void* kernel) {
  kernel_ = kernel;
  grid_serial_ = serial_ + 1;
  fenced_.clear();
  random_.seed(Options().seed);
}

void Block::StartThreads(dim3 size) {
  num_threads_ = size.x * size.y * size.z;
  for (unsigned i = 0; i < num_threads_; ++i) {
    if (i % kWarpLanes == 0) warps_[i / kWarpLanes] = Warp{};
    Warp& warp = warps_[i / kWarpLanes];
    DeviceThread& t = threads_[i];
    t.index = uint3{i % size.x, i / size.x % size.y, i / size.x / size.y};
    t.linear = i;
    t.lane = i % kWarpLanes;
    t.warp = i / kWarpLanes;
    t.phase = ThreadPhase::kReady;
    t.open_copies.clear();
    t.committed_copies.clear();
    t.clock.fill(0);
    t.clock[t.lane] = 1;
    warp.lanes[t.lane] = &t;
    warp.exist |= 1u << t.lane;
    t.fiber.Start(t.stack, kStackBytes, &Block::ThreadMain);
  }
  const bool descending = Options().schedule == Schedule::kGreedyFirstWarp;  // who is pushed last runs first
  for (unsigned i = 0; i < num_threads_; ++i) ready_.Push(descending ? num_threads_ - 1 - i : i);
}

bool Block::Run(const KernelCall& call, uint3 index) {
  call_ = &call;
  blockIdx = index;
  ++serial_;
  barriers_passed_ = 0;
  num_done_ = 0;
  barrier_ = BarrierState{};
  ready_.Clear();
  abandoned_ = false;
  StartThreads(blockDim);
  host_.BecomeHost();
  SwitchTo(nullptr, NextThread(), false);
  ++blocks_run_;
  if (!abandoned_ && num_done_ != num_threads_) {
    ReportDeadlock();
    SetStickyError(cudaErrorLaunchFailure);
    abandoned_ = true;
  }
  if (abandoned_)  // frames that nobody left in order
    for (unsigned i = 0; i < num_threads_; ++i) Unpoison(threads_[i].stack, kStackBytes);
  call_ = nullptr;
  return !abandoned_;
}

void Block::ThreadMain() {
  Block& block = Get();
  Fiber::Entered(block.host_);
  block.call_->invoke(block.call_->parameters.get());
  DeviceThread& me = *current_thread;
  block.FinishThread(me);
  block.SwitchTo(&me, block.NextThread(), true);
}

void Block::FinishThread(DeviceThread& thread) {
  AsyncWait(0);  // what is still on its way lands after all
  Warp& warp = warps_[thread.warp];
  for (unsigned rest = warp.arrived; rest != 0; rest &= rest - 1) {
    const DeviceThread& other = *warp.lanes[static_cast<unsigned>(__builtin_ctz(rest))];
    if ((other.mask >> thread.lane & 1) != 0)
      Fail(ReportKind::kWarpMask, "lane {} returns while lane {} waits for it at {} (mask {:08x})",
           thread.lane, other.lane, other.site, other.mask);
  }
  thread.phase = ThreadPhase::kDone;
  ++num_done_;
  warp.exited |= 1u << thread.lane;
  ReleaseBarrierIfComplete();
}

DeviceThread* Block::NextThread() {
  return ready_.empty() ? nullptr : &threads_[ready_.Pop(Options().schedule, random_)];
}

void Block::SwitchTo(DeviceThread* from, DeviceThread* to, bool ends) {
  current_thread = to;
  if (to != nullptr) threadIdx = to->index;
  Fiber::Switch(from == nullptr ? host_ : from->fiber, to == nullptr ? host_ : to->fiber, ends);
}

void Block::Wait() {
  DeviceThread* const me = current_thread;
  DeviceThread* const next = NextThread();
  if (next != me) SwitchTo(me, next, false);
}

void Block::Abandon() {
  abandoned_ = true;
  in_warp_function_ = false;
  ready_.Clear();
  SwitchTo(current_thread, nullptr, true);
  __builtin_unreachable();
}

int Block::Barrier(BarrierVote vote, int predicate, Site site) {
  DeviceThread& me = *current_thread;
  if (barrier_.waiting == 0) {
    const int last_result = barrier_.result;
    barrier_ = BarrierState{};
    barrier_.result = last_result;
    barrier_.site = site;
    barrier_.vote = vote;
    barrier_.first_thread = me.linear;
  } else if (!SameSite(site, barrier_.site) || vote != barrier_.vote) {
    Fail(ReportKind::kBarrier, "divergent barrier: this thread waits at {} while thread {} waits at {}", site,
         barrier_.first_thread, barrier_.site);
  }
  barrier_.any = barrier_.any || predicate != 0;
  barrier_.all = barrier_.all && predicate != 0;
  barrier_.count += predicate != 0;
  me.phase = ThreadPhase::kAtBarrier;
  me.site = site;
  ++barrier_.waiting;
  ReleaseBarrierIfComplete();
  Wait();
  return barrier_.result;  // the next barrier ends only after all have read this one's
}

void Block::ReleaseBarrierIfComplete() {
  if (barrier_.waiting == 0 || barrier_.waiting + num_done_ != num_threads_) return;
  if (num_done_ > 0)
    Fail(ReportKind::kBarrier, "the barrier at {} is reached by {} of {} threads; the others have returned",
         barrier_.site, barrier_.waiting, num_threads_);
  barrier_.result = barrier_.vote == BarrierVote::kOr    ? barrier_.any
                    : barrier_.vote == BarrierVote::kAnd ? barrier_.all
                                                         : barrier_.count;
  barrier_.waiting = 0;
  ++barriers_passed_;
  const bool descending = Options().schedule == Schedule::kGreedyFirstWarp;
  for (unsigned i = 0; i < num_threads_; ++i) {
    DeviceThread& thread = threads_[descending ? num_threads_ - 1 - i : i];
    thread.phase = ThreadPhase::kReady;
    ready_.Push(thread.linear);
  }
}

void Block::ReportDeadlock() const {
  std::map<std::string, int> places;
  for (unsigned i = 0; i < num_threads_; ++i) {
    const DeviceThread& t = threads_[i];
    if (t.phase == ThreadPhase::kAtBarrier) ++places[fmt::format("the barrier at {}", t.site)];
    if (t.phase == ThreadPhase::kInWarp)
      ++places[fmt::format("the operation of warp {} at {} (mask {:08x})", t.warp, t.site, t.mask)];
  }
  std::string text = fmt::format("kernel {} block ({},{},{}): no thread can go on; {} of {} have returned",
                                 KernelName(), blockIdx.x, blockIdx.y, blockIdx.z, num_done_, num_threads_);
  for (const auto& [place, count] : places) text += fmt::format("; {} wait in {}", count, place);
  AddReport(ReportKind::kDeadlock, text);
}

int BlockBarrier(BarrierVote vote, int predicate, Site site) {
  return Block::Get().Barrier(vote, predicate, site);
}
void OnFence() { Block::Get().Fence(); }
void AbandonBlock() {
  if (current_thread == nullptr) {
    fmt::print(stderr, "CUDA emulator: device code's error outside a kernel\n");
    std::abort();
  }
  Block::Get().Abandon();
}
void FailTrap() { Fail(ReportKind::kLaunch, "__trap()"); }
uint64_t BlocksRun() { return Block::Get().blocks_run(); }

}  // namespace weir::emulator
