#include "server/grpc_log.h"

#include <atomic>
#include <string_view>

#include "grpc/support/log.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

std::atomic<bool> held{false};
std::atomic<void (*)()> on_accepting_ended{nullptr};

void Write(gpr_log_func_args* args) {
  if (std::string_view(args->message).find("Failed accept4") != std::string_view::npos)
    if (void (*const callback)() = on_accepting_ended.exchange(nullptr)) callback();
  // Whoever can reach the port can make as many of these as he likes.
  const bool handshake = std::string_view(args->message).substr(0, 16) == "Handshake failed";
  if (args->severity == GPR_LOG_SEVERITY_ERROR && !handshake && !held.load(std::memory_order_relaxed))
    spdlog::warn("grpc: {}", args->message);
  else
    spdlog::debug("grpc: {}", args->message);
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(Write); }

void OnAcceptingEnded(void (*callback)()) { on_accepting_ended.store(callback); }

void HoldGrpcErrors(bool hold) { held.store(hold, std::memory_order_relaxed); }

}  // namespace weir
