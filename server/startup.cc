#include "server/startup.h"

#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/cpu_info.h"
#include "runtime/base/memory_limit.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/state/kv_pool.h"
#include "server/capacity.h"
#include "server/log.h"
#include "server/process_memory.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

// On top of the engine's stall limit: a reader that comes back in this time still gets its status.
constexpr absl::Duration kStallGrace = absl::Seconds(10);

// What no memory is needed to know.
CapacityRequest CapacityOf(const Options& options) {
  CapacityRequest request;
  request.slots = options.slots;
  request.max_step_tokens = options.max_step_tokens;
  request.max_waiting = options.max_waiting;
  return request;
}

// `memory`: bytes that the shares are of.
CapacityRequest CapacityOf(const Options& options, int64_t memory) {
  CapacityRequest request = CapacityOf(options);
  request.state_memory = options.state_memory.Resolve(memory);
  if (options.kv_memory) request.kv_memory = options.kv_memory->Resolve(memory);
  request.kv_memory_limit = memory / 4;
  return request;
}

// What the options say of the tokenizer of `model`.
void ChooseTokenizer(const Options& options, const NamedFolder& model, LoadOptions* load) {
  const TokenizerChoice* chosen = nullptr;
  for (const TokenizerChoice& choice : options.tokenizers) {
    if (choice.model == model.name) chosen = &choice;
    // One that cannot be reached, or a link that leads nowhere, is not absent: loading says what it is.
    std::error_code none;
    const auto own = std::filesystem::symlink_status(model.folder + "/tokenizer.json", none);
    if (choice.model.empty() && chosen == nullptr && own.type() == std::filesystem::file_type::not_found)
      chosen = &choice;
  }
  if (chosen == nullptr) return;
  load->tokenizer_folder = chosen->folder;
  load->ids_only = chosen->folder.empty();
}

void LogModel(const LoadedModel& model, const CapacityPlan& plan, int wanted_slots) {
  std::string state = fmt::format("{} slots", plan.limits.slots);
  if (plan.slot_bytes > 0) state += fmt::format(" of {} bytes", plan.slot_bytes);
  if (plan.block_bytes > 0)
    state += fmt::format("; {} KV blocks of {} bytes, {} tokens each", plan.limits.kv_blocks,
                         plan.block_bytes, kKvBlockTokens);
  spdlog::info("models/{}: {} ({}), {} parameters, {} bytes of {} weights; {}", model.name, model.mixer,
               model.architecture, model.parameter_count, model.weight_bytes, DTypeName(model.weight_dtype),
               state);
  for (const std::string& warning : model.warnings) spdlog::warn("models/{}: {}", model.name, warning);
  if (plan.limits.slots < wanted_slots)
    spdlog::warn("models/{}: --state-memory holds {} of the {} slots wanted", model.name, plan.limits.slots,
                 wanted_slots);
}

}  // namespace

int ComputeThreads(const Options& options) { return options.threads > 0 ? options.threads : UsableCpus(); }

ServerOptions ServerOptionsOf(const Options& options) {
  ServerOptions server;
  server.listen = options.listen;
  server.metrics_listen = options.metrics_listen;
  server.reflection = options.reflection;
  server.max_message_bytes = static_cast<int>(options.max_message_size.bytes);
  server.max_metadata_bytes = static_cast<int>(options.max_metadata_size.bytes);
  server.max_streams = options.max_streams;
  server.keepalive_time = options.keepalive_time;
  server.keepalive_timeout = options.keepalive_timeout;
  server.min_ping_interval = options.min_ping_interval;
  server.max_connection_idle = options.max_connection_idle;
  server.max_connection_age = options.max_connection_age;
  server.max_connection_age_grace = options.max_connection_age_grace;
  server.access.tls = options.tls;
  server.access.api_keys = options.api_keys;
  server.access.log = [](LogLevel level, const std::string& line) {
    spdlog::log(level == LogLevel::kWarning ? spdlog::level::warn : spdlog::level::info, "{}", line);
  };
  server.stuck_write = options.reader_stall + kStallGrace;
  server.frontend.max_text_bytes = options.max_prompt_size.bytes;
  server.frontend.compute_threads = ComputeThreads(options);
  server.frontend.executor.threads = options.frontend_threads;
  if (const int64_t limit = MemoryLimit(); limit > 0)
    server.frontend.executor.max_bytes = RequestLineBytes(limit);
  server.frontend.calls.sink = LogCall;
  server.frontend.calls.prompts = options.log_prompts;
  server.dropped_log_lines = DroppedLogLines;
  return server;
}

void LogAccess(const Options& options) {
  const bool reachable = !IsLoopback(options.listen);
  const bool plain = !options.tls.enabled();
  if (reachable && plain && !options.api_keys.empty())
    spdlog::warn(
        "API keys cross the network in plaintext: anyone on the way can read and use them; give "
        "--tls-cert and --tls-key");
  if (reachable && options.api_keys.empty() && options.tls.client_ca.empty())
    spdlog::warn("anyone who reaches {} may use this server and its sessions; give --api-keys{}",
                 options.listen, plain ? "" : " or --tls-client-ca");
}

absl::StatusOr<LoadedEngine> LoadEngine(const Options& options, QuotaLookup quota_of,
                                        std::function<void(const absl::Status&)> on_device_lost) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Device> created,
                        CreateDevice(options.device, ComputeThreads(options)));
  const std::shared_ptr<Device> device = std::move(created);
  spdlog::info("device {}: {}, {} bytes of memory", device->name(), device->Description(),
               device->memory_bytes());
  LoadedEngine loaded;  // after the device, whose memory its models hold
  std::vector<const LanguageModel*> decoders;
  for (const NamedFolder& named : options.models) {
    spdlog::info("loading models/{} from {}", named.name, named.folder);
    LoadOptions load;
    load.kv_dtype = options.kv_dtype;
    load.weight_dtype = options.weight_dtype;
    ChooseTokenizer(options, named, &load);
    WEIR_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(named.folder, *device, load));
    model.name = named.name;
    decoders.push_back(model.decoder.get());
    loaded.models.push_back(std::move(model));
  }
  if (const std::string products = DescribeProducts(*device); !products.empty()) spdlog::info("{}", products);
  // Shares are of what is left of the host's memory, or of all that a GPU has.
  const bool on_cpu = device->backend() == Backend::kCpu;
  const HostMemory host =
      ShareHostMemory(MemoryLimit(), ReadProcessMemory().resident, CapacityOf(options),
                      on_cpu ? decoders : std::vector<const LanguageModel*>(), ComputeThreads(options));
  spdlog::info(
      "of {} bytes of memory, {} are taken and {} kept for steps and calls: {} for what sessions hold",
      host.limit, host.taken, host.reserve, host.free());
  if (on_cpu) WEIR_RETURN_IF_ERROR(CheckAnyLeft(host));
  const int64_t snapshot_memory = options.snapshot_memory.Resolve(host.free());
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<CapacityPlan> plans,
      PlanCapacity(CapacityOf(options, on_cpu ? host.free() : device->memory_bytes()), decoders));
  WEIR_RETURN_IF_ERROR(CheckFits(host, on_cpu ? plans : std::vector<CapacityPlan>(), snapshot_memory));
  std::vector<EngineModel> models;
  for (size_t i = 0; i < plans.size(); ++i) {
    const LoadedModel& model = loaded.models[i];
    LogModel(model, plans[i], options.slots);
    models.push_back(EngineModelOf(model, plans[i].limits));
  }
  EngineOptions engine;
  engine.default_ttl = options.session_ttl;
  engine.max_ttl = options.max_session_ttl;
  engine.reader_stall = options.reader_stall;
  engine.snapshot_memory = snapshot_memory;  // the host's, on every device
  engine.quota_of = std::move(quota_of);
  engine.on_device_lost = std::move(on_device_lost);
  WEIR_ASSIGN_OR_RETURN(loaded.engine, Engine::Create(device, std::move(models), engine));
  for (const std::string& warning : loaded.engine->Warnings()) spdlog::warn("{}", warning);
  return loaded;
}

}  // namespace weir
