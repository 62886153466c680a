// The one primitive behind all warp operations: lanes meet, one of them computes for all.
#include <algorithm>

#include "tests/cuda/emulator/block.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/symbolize.h"

namespace weir::emulator {

void Block::CheckMask(const Warp& warp, unsigned mask, Site site) const {
  const unsigned lane = current_thread->lane;
  if ((mask >> lane & 1) == 0)
    Fail(ReportKind::kWarpMask, "{}: the calling lane {} is not in its mask {:08x}", site, lane, mask);
  if ((mask & ~warp.exist) != 0)
    Fail(ReportKind::kWarpMask,
         "{}: mask {:08x} names lanes that do not exist (the block size is no multiple of 32)", site, mask);
  if ((mask & warp.exited) != 0)
    Fail(ReportKind::kWarpMask, "{}: mask {:08x} names lanes {:08x} that have returned", site, mask,
         mask & warp.exited);
}

// The lanes that wait for the same operation. Other operations may wait in the warp too, as halves of a warp
// do; only two lanes that each wait for the other in different ones can never go on.
unsigned Block::WaitingWith(const Warp& warp, unsigned mask, WarpFunction function, Site site) const {
  const unsigned lane = current_thread->lane;
  unsigned group = 0;
  for (unsigned rest = warp.arrived; rest != 0; rest &= rest - 1) {
    const DeviceThread& other = *warp.lanes[static_cast<unsigned>(__builtin_ctz(rest))];
    if (other.mask == mask && other.function == function && SameSite(other.site, site))
      group |= 1u << other.lane;
    else if ((other.mask >> lane & 1) != 0 && (mask >> other.lane & 1) != 0)
      Fail(ReportKind::kWarpMask, "lane {} is at {} with mask {:08x} while lane {} is at {} with mask {:08x}",
           lane, site, mask, other.lane, other.site, other.mask);
  }
  return group;
}

void Block::MergeClocks(Warp& warp, unsigned mask) {
  std::array<uint32_t, kWarpLanes> known{};
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const DeviceThread& thread = *warp.lanes[static_cast<unsigned>(__builtin_ctz(rest))];
    for (unsigned k = 0; k < kWarpLanes; ++k) known[k] = std::max(known[k], thread.clock[k]);
  }
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    DeviceThread& thread = *warp.lanes[static_cast<unsigned>(__builtin_ctz(rest))];
    thread.clock = known;
    ++thread.clock[thread.lane];
  }
}

void Block::Complete(Warp& warp, unsigned mask, bool orders_memory) {
  void* brought[kWarpLanes] = {};
  for (unsigned i = 0; i < kWarpLanes; ++i)
    if ((mask >> i & 1) != 0) brought[i] = warp.lanes[i]->brought;
  in_warp_function_ = true;
  current_thread->function(brought, mask);
  in_warp_function_ = false;
  if (orders_memory) MergeClocks(warp, mask);
  warp.arrived &= ~mask;
  const bool descending = Options().schedule == Schedule::kGreedyFirstWarp;
  for (unsigned i = 0; i < kWarpLanes; ++i) {
    const unsigned lane = descending ? kWarpLanes - 1 - i : i;
    if ((mask >> lane & 1) == 0) continue;
    warp.lanes[lane]->phase = ThreadPhase::kReady;
    ready_.Push(warp.lanes[lane]->linear);
  }
}

void Block::Rendezvous(unsigned mask, void* mine, WarpFunction function, bool orders_memory, Site site) {
  DeviceThread& me = *current_thread;
  Warp& warp = warps_[me.warp];
  CheckMask(warp, mask, site);
  const unsigned group = WaitingWith(warp, mask, function, site) | 1u << me.lane;
  me.mask = mask;
  me.brought = mine;
  me.function = function;
  me.site = site;
  me.phase = ThreadPhase::kInWarp;
  warp.arrived |= 1u << me.lane;
  if (group == mask) Complete(warp, mask, orders_memory);
  Wait();
}

void WarpRendezvous(unsigned mask, void* mine, WarpFunction function, bool orders_memory, Site site) {
  Block::Get().Rendezvous(mask, mine, function, orders_memory, site);
}
unsigned ActiveMask() { return Block::Get().ActiveMask(); }

void FailLaneNotInMask(int lane, unsigned mask) {
  Fail(ReportKind::kWarpMask, "a shuffle reads lane {}, which is not in the mask {:08x}", lane, mask);
}
void FailPartialWarp(const char* operation, unsigned mask) {
  Fail(ReportKind::kWarpMask, "{} needs the whole warp, not mask {:08x}", operation, mask);
}

}  // namespace weir::emulator
