// weir-server: the process. Signals are waited for, never handled, so no code runs in signal context.
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/clock.h"
#include "runtime/base/process.h"
#include "runtime/base/write_all.h"
#include "server/grpc_log.h"
#include "server/log.h"
#include "server/options.h"
#include "server/server.h"
#include "server/startup.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

// Documented in --help.
enum ExitStatus {
  kOk = 0,
  kNotPrinted = 1,
  kBadOptions = 2,
  kModelNotLoaded = 3,
  kAddressInUse = 4,
  kDeaf = 5,
  kDeviceLost = 6,
  kShortage = 7
};

// Why the process ends, if not by a signal from outside: the first reason.
std::atomic<ExitStatus> end_reason{kOk};

constexpr absl::Duration kLook = absl::Milliseconds(20);
// With a lost device no turn goes on; what is waited for are statuses on their way.
constexpr absl::Duration kLastStatuses = absl::Seconds(5);
// For the last lines of the log, where nobody reads it.
constexpr absl::Duration kLogPatience = absl::Seconds(2);

// SIGTERM and SIGINT, blocked before the first thread starts so that every thread inherits it.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// True when a stop signal came within `wait`.
bool StopSignalWithin(const sigset_t& signals, absl::Duration wait) {
  const timespec time = absl::ToTimespec(wait);
  return sigtimedwait(&signals, nullptr, &time) > 0;
}

// As if told to stop, but for the status. Any thread.
void EndWith(ExitStatus reason) {
  ExitStatus none = kOk;
  end_reason.compare_exchange_strong(none, reason);
  kill(getpid(), SIGTERM);
}

void OnDeviceLost(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  EndWith(kDeviceLost);
}

// Waits until the models are loaded. A stop signal ends the process: a load cannot be interrupted, and
// nobody has been promised anything yet.
absl::StatusOr<LoadedEngine> Load(const Options& options, const sigset_t& signals, WeirServer* server) {
  std::atomic<bool> ready{false};
  absl::StatusOr<LoadedEngine> loaded = absl::UnknownError("not loaded");
  std::thread loader([&] {
    loaded = LoadEngine(options, server->quota_of(), OnDeviceLost);
    ready.store(true, std::memory_order_release);
  });
  while (!ready.load(std::memory_order_acquire)) {
    if (!StopSignalWithin(signals, kLook)) continue;
    spdlog::info("stopped while loading");
    server->Shutdown(MonotonicNow());
    FinishLog(kLogPatience);
    std::_Exit(kOk);
  }
  loader.join();
  return loaded;
}

// Load balancers learn of an end by asking, every few seconds: until they have, calls go on to come. True
// when a second signal came.
bool LeaveAndWait(absl::Duration delay, const sigset_t& signals, WeirServer* server) {
  if (delay <= absl::ZeroDuration()) return false;
  spdlog::info("leaving: NOT_SERVING from now on, new work is taken for {} more",
               absl::FormatDuration(delay));
  server->Leave();
  return StopSignalWithin(signals, delay) && end_reason.load() == kOk;  // not that of a device that fails now
}

void DrainAndStop(const Options& options, const sigset_t& signals, WeirServer* server) {
  bool at_once = end_reason.load() == kOk && LeaveAndWait(options.drain_delay, signals, server);
  const absl::Duration patience = end_reason.load() == kDeviceLost
                                      ? std::min(options.drain_timeout, kLastStatuses)
                                      : options.drain_timeout;
  const absl::Time deadline = MonotonicNow() + patience;
  spdlog::info("draining for at most {}; a second signal ends at once", absl::FormatDuration(patience));
  server->Drain();
  while (!at_once && !server->Idle() && MonotonicNow() < deadline) at_once = StopSignalWithin(signals, kLook);
  if (at_once) spdlog::warn("second signal: ending now");
  if (!server->Idle()) spdlog::warn("ending with {} streams open", server->live_streams());
  // Statuses of the turns that are cut off still have to reach their clients.
  server->Shutdown(std::max(at_once ? MonotonicNow() : deadline, MonotonicNow() + absl::Milliseconds(500)));
}

int Run(const Options& options, const sigset_t& signals) {
  HoldGrpcErrors(true);  // of an address that cannot be had
  absl::StatusOr<std::unique_ptr<WeirServer>> server = WeirServer::Start(ServerOptionsOf(options));
  HoldGrpcErrors(false);
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return server.status().code() == absl::StatusCode::kInvalidArgument ? kBadOptions : kAddressInUse;
  }
  LogAccess(options);
  spdlog::info("weir-server {} listens on {}", WEIR_VERSION, (*server)->AddressText());
  if (!options.metrics_listen.empty()) spdlog::info("metrics on {}", (*server)->MetricsAddressText());
  absl::StatusOr<LoadedEngine> loaded = Load(options, signals, server->get());
  if (!loaded.ok()) {
    spdlog::error("{}", std::string(loaded.status().message()));
    return kModelNotLoaded;
  }
  const std::string device = loaded->engine->device().name();
  const size_t num_models = loaded->models.size();
  (*server)->Serve(std::move(loaded->engine), std::move(loaded->models));
  spdlog::info("ready: {} models on {} with {} compute threads", num_models, device, ComputeThreads(options));
  int signal = 0;
  sigwait(&signals, &signal);
  if (end_reason.load() == kDeaf)
    spdlog::error(
        "no new connection can be accepted any more, as the {} descriptors that this process may open were "
        "in use; "
        "what runs is finished and the process ends: start it again with a higher limit (ulimit -n)",
        RaiseDescriptorLimit());
  DrainAndStop(options, signals, server->get());
  spdlog::info("stopped");
  return end_reason.load();
}

void Complain(const std::string& what) { WriteAll(STDERR_FILENO, fmt::format("weir-server: {}\n", what)); }

// What was asked for instead of a server.
int Show(const CommandLine& line) {
  const int error = WriteAll(STDOUT_FILENO, *line.show);
  // A reader that goes away early, as `head` does, has what it wants; but the line of a new key is lost.
  if (error == EPIPE && line.note.empty()) return kOk;
  if (error != 0) {
    Complain(fmt::format("cannot write the output: {}{}", std::strerror(error),
                         line.note.empty() ? "" : "; no key was made"));
    return kNotPrinted;
  }
  return WriteAll(STDERR_FILENO, line.note) == 0 ? kOk : kNotPrinted;
}

int Main(int argc, char** argv) {
  NameShortages("weir-server", kShortage);
  KeepStandardDescriptors(argv);
  RaiseDescriptorLimit();
  signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = BlockStopSignals();
  const absl::StatusOr<CommandLine> line =
      ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc), ProcessEnvironment());
  if (!line.ok()) {
    Complain(std::string(line.status().message()));
    return kBadOptions;
  }
  if (line->show) return Show(*line);
  SetUpLog(line->options.log_level, line->options.log_format);
  RouteGrpcLog();
  OnAcceptingEnded([] { EndWith(kDeaf); });  // a server that nobody reaches is worse than none
  const int status = Run(line->options, signals);
  if (!FinishLog(kLogPatience)) std::_Exit(status);
  return status;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
