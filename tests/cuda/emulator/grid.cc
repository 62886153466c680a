// From a launch to its blocks, one after the other.
#include "tests/cuda/emulator/grid.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cuda/emulator/block.h"
#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/device_state.h"
#include "tests/cuda/emulator/fault_handler.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/shared_memory.h"
#include "tests/cuda/emulator/streams.h"
#include "tests/cuda/emulator/symbolize.h"

// Written for device code; see device_builtins.h.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace weir::emulator {
namespace {

struct Grid {
  const void* kernel;
  dim3 blocks, threads;
  size_t dynamic_shared_bytes;
  KernelCall call;
};

uint64_t kernels_run = 0;  // one runs at a time

// Blocks may run in any order on a GPU.
std::vector<size_t> BlockOrder(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (Options().schedule == Schedule::kGreedyLastWarp) std::reverse(order.begin(), order.end());
  if (Options().schedule == Schedule::kRandom)
    std::shuffle(order.begin(), order.end(), Block::Get().random());
  return order;
}

void Run(const Grid& grid) {
  DeviceState& state = DeviceState::Get();
  if (state.KernelFails()) return;
  ++kernels_run;
  const DeviceHeap::Access access;
  PrepareThreadForFaults();
  blockDim = grid.threads;
  gridDim = grid.blocks;
  Block& block = Block::Get();
  block.BeginGrid(grid.kernel);
  SharedMemory& shared = SharedMemory::Get();
  shared.BeginGrid(grid.dynamic_shared_bytes);
  const dim3 n = grid.blocks;
  for (const size_t i : BlockOrder(size_t{n.x} * n.y * n.z)) {
    shared.BeginBlock();
    const uint3 index{static_cast<unsigned>(i % n.x), static_cast<unsigned>(i / n.x % n.y),
                      static_cast<unsigned>(i / n.x / n.y)};
    if (!block.Run(grid.call, index)) break;
    shared.CheckGuards();
    if (state.sticky_error() != cudaSuccess) break;
  }
  DeviceHeap::Get().CheckGuards();
}

std::unordered_map<const void*, size_t>& DynamicLimits() {
  static auto* const limits = new std::unordered_map<const void*, size_t>;
  return *limits;
}

cudaError_t CheckShape(const cudaLaunchConfig_t& config) {
  const dim3 b = config.blockDim, g = config.gridDim;
  const size_t threads = size_t{b.x} * b.y * b.z;
  if (threads == 0 || threads > kMaxBlockThreads || b.z > 64) return cudaErrorInvalidConfiguration;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    return cudaErrorInvalidConfiguration;
  return cudaSuccess;
}

}  // namespace

uint64_t KernelsRun() { return kernels_run; }

size_t DynamicSharedLimit(const void* kernel) {
  const auto it = DynamicLimits().find(kernel);
  return it == DynamicLimits().end() ? kStaticSharedLimit : it->second;
}
void SetDynamicSharedLimit(const void* kernel, size_t bytes) { DynamicLimits()[kernel] = bytes; }

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel, KernelCall call) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (const cudaError_t error = CheckShape(config); error != cudaSuccess) return api.Return(error);
  if (config.dynamicSmemBytes > DynamicSharedLimit(kernel)) return api.Return(cudaErrorInvalidValue);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) continue;
    Note(ReportKind::kLaunch, "launch attribute {} of kernel {} is not emulated",
         static_cast<int>(config.attrs[i].id), FunctionAt(kernel));
    return api.Return(cudaErrorNotSupported);
  }
  CUstream_st* const stream = Streams::Get().Find(config.stream);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  Grid grid{kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes, std::move(call)};
  return api.Return(Streams::Get().Enqueue(*stream, [grid = std::move(grid)] { Run(grid); }));
}

}  // namespace weir::emulator
