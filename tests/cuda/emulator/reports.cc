#include "tests/cuda/emulator/reports.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "tests/cuda/emulator/block.h"

namespace weir::emulator {
namespace {

class ReportList {
 public:
  static ReportList& Get() {
    static ReportList* const list = new ReportList;
    return *list;
  }
  void Add(ReportKind kind, std::string text) {
    const std::lock_guard lock(mutex_);
    if (Options().print_reports) fmt::print(stderr, "CUDA emulator, {}: {}\n", ReportName(kind), text);
    reports_.push_back({kind, std::move(text)});
    if (exiting_ && !Options().collect_reports)
      std::abort();  // in a destructor, when the exit code is settled
  }
  std::vector<Report> All() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    reports_.clear();
  }

 private:
  ReportList() {
    std::atexit([] {
      Get().exiting_ = true;
      if (Options().collect_reports || Reports().empty()) return;
      fmt::print(stderr, "CUDA emulator: the process ends with {} report(s)\n", Reports().size());
      std::fflush(nullptr);
      std::_Exit(70);
    });
  }

  std::mutex mutex_;
  std::vector<Report> reports_;
  bool exiting_ = false;
};

// WEIR_EMULATOR="devices=0,memory=1073741824,schedule=random,seed=7", for servers that a test starts.
void Apply(std::string_view setting, EmulatorOptions& options) {
  const size_t equals = setting.find('=');
  const std::string_view name = setting.substr(0, equals);
  const std::string value(equals == std::string_view::npos ? "" : setting.substr(equals + 1));
  if (name == "devices") {
    options.device_count = std::atoi(value.c_str());
    if (options.device_count == 0) options.device_error = cudaErrorNoDevice;
  } else if (name == "memory") {
    options.total_memory = std::strtoull(value.c_str(), nullptr, 10);
  } else if (name == "cublaslt") {
    options.cublaslt = std::atoi(value.c_str()) != 0;
  } else if (name == "seed") {
    options.seed = std::strtoull(value.c_str(), nullptr, 10);
  } else if (name == "schedule") {
    options.schedule = value == "random"       ? Schedule::kRandom
                       : value == "first-warp" ? Schedule::kGreedyFirstWarp
                       : value == "last-warp"  ? Schedule::kGreedyLastWarp
                                               : Schedule::kRoundRobin;
  } else {
    fmt::print(stderr, "WEIR_EMULATOR: unknown setting '{}'\n", setting);
    std::abort();
  }
}

EmulatorOptions DefaultOptions() {
  EmulatorOptions options;
  const char* const environment = std::getenv("WEIR_EMULATOR");
  std::string_view rest = environment == nullptr ? "" : environment;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    Apply(rest.substr(0, comma), options);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return options;
}

}  // namespace

EmulatorOptions& Options() {
  static EmulatorOptions options = DefaultOptions();
  return options;
}
void ResetOptions() { Options() = DefaultOptions(); }

const char* ReportName(ReportKind kind) {
  switch (kind) {
    case ReportKind::kBarrier:
      return "barrier";
    case ReportKind::kDeadlock:
      return "deadlock";
    case ReportKind::kWarpMask:
      return "warp mask";
    case ReportKind::kSharedBounds:
      return "shared memory bounds";
    case ReportKind::kGlobalBounds:
      return "global memory bounds";
    case ReportKind::kHostMemory:
      return "host memory";
    case ReportKind::kMisaligned:
      return "misaligned access";
    case ReportKind::kRace:
      return "race";
    case ReportKind::kUninitialised:
      return "uninitialised memory";
    case ReportKind::kLaunch:
      return "launch";
    case ReportKind::kApi:
      return "API";
    case ReportKind::kLeak:
      return "leak";
  }
  return "?";
}

cudaError_t StickyErrorOf(ReportKind kind) {
  switch (kind) {
    case ReportKind::kGlobalBounds:
    case ReportKind::kSharedBounds:
    case ReportKind::kHostMemory:
      return cudaErrorIllegalAddress;
    case ReportKind::kMisaligned:
      return cudaErrorMisalignedAddress;
    default:
      return cudaErrorLaunchFailure;
  }
}

void AddReport(ReportKind kind, const std::string& text) {
  const std::string place = Block::Get().DescribeCurrentThread();
  ReportList::Get().Add(kind, place.empty() ? text : fmt::format("{}: {}", place, text));
}

std::vector<Report> Reports() { return ReportList::Get().All(); }
void ClearReports() { ReportList::Get().Clear(); }

void AbortIfReported() {
  if (Options().collect_reports || Reports().empty()) return;
  fmt::print(stderr, "CUDA emulator: aborting, since no test collects reports\n");
  std::abort();
}

}  // namespace weir::emulator
