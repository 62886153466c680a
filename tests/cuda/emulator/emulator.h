// What tests set and ask of the emulated GPU. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir::emulator {

// The order in which the threads of a block run between two waits. One order alone hides mistakes that depend
// on it.
enum class Schedule : uint8_t {
  kRoundRobin,       // cp.async moves its bytes as late as allowed
  kGreedyFirstWarp,  // the warp that can run runs on, first warp first; cp.async late
  kGreedyLastWarp,   // last warp and last block first; cp.async at once
  kRandom,           // by the seed; cp.async either way
};
inline constexpr Schedule kSchedules[] = {Schedule::kRoundRobin, Schedule::kGreedyFirstWarp,
                                          Schedule::kGreedyLastWarp, Schedule::kRandom};

// Read when it matters, so a change holds from the next call on. What the environment names (README.md) is
// the default.
struct EmulatorOptions {
  Schedule schedule = Schedule::kRoundRobin;
  uint64_t seed = 1;
  bool lazy_streams = true;      // queued work runs when something waits for it; else at once
  bool collect_reports = false;  // else the process aborts when it next synchronises, or at its exit
  bool print_reports = true;
  bool check_leaks = true;  // gtest_reports.cc: a test leaves no device memory behind
  int device_count = 1;
  cudaError_t device_error =
      cudaSuccess;         // what every call gives, as cudaErrorNoDevice or cudaErrorInsufficientDriver
  int driver_version = 0;  // of cudaDriverGetVersion where calls give an error; 0: no driver
  size_t total_memory = size_t{2} << 30;  // bytes of each device
  int compute_capability = 90;
  int multiprocessors = 4;
  bool cublaslt = false;  // whether libcublasLt is installed
  // Whether algorithm `algorithm` (of kCublasLtAlgorithms, in the order of the heuristics) sums over k from
  // the end for column `column` of a product with `columns` of them. Null: none ever does.
  bool (*cublaslt_reverses)(int algorithm, uint64_t columns, uint64_t column) = nullptr;
};
inline constexpr int kCublasLtAlgorithms = 3;
EmulatorOptions& Options();
// Back to the defaults.
void ResetOptions();

enum class ReportKind : uint8_t {
  kBarrier,
  kDeadlock,
  kWarpMask,
  kSharedBounds,
  kGlobalBounds,
  kHostMemory,
  kMisaligned,
  kRace,
  kUninitialised,
  kLaunch,
  kApi,
  kLeak,
};
const char* ReportName(ReportKind kind);

// A mistake that was seen. What CUDA itself answers with an error code is no report.
struct Report {
  ReportKind kind;
  std::string text;
};
std::vector<Report> Reports();
void ClearReports();

// The n-th kernel or copy (1: the next) that runs from now on fails with `error`, which stays as a real
// illegal address does, until ResetDevices.
void FailKernel(int n, cudaError_t error);
void FailCopy(int n, cudaError_t error);

// Drops queued work, captures, errors and planned faults; memory, streams and events stay.
void ResetDevices();

size_t LiveDeviceBytes();  // asked for and not freed, all devices
// A report for each live device allocation.
void ReportLeaks();
uint64_t BlocksRun();
uint64_t KernelsRun();

// Of all threads' cp.async waits so far, those that had copies to wait for or left some on their way, and of
// these the ones that left some: whose bytes come while the thread works on those that it has waited for.
struct CopyWaits {
  uint64_t all = 0, overlapped = 0;
};
CopyWaits CopyWaitsSoFar();

// Launches of graphs that nobody had uploaded, each of which then does that first.
uint64_t LateGraphUploads();

}  // namespace weir::emulator
