// weir info: health, capacity and use; the health check of a container.
#include <memory>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/help.h"
#include "client/command/json.h"
#include "fmt/format.h"
#include "google/protobuf/util/time_util.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

// A health check that hangs is a failed one.
constexpr absl::Duration kDefaultTimeout = absl::Seconds(5);

std::string Mebibytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string InfoText(const v1::ServerInfo& info) {
  std::string text = fmt::format(
      "version:  {}\nstarted:  {}\ndevice:   {}, {} compute threads\nmemory:   {} resident, {} on the "
      "device\n",
      info.version(), google::protobuf::util::TimeUtil::ToString(info.start_time()), info.device(),
      info.compute_threads(), Mebibytes(info.process_resident_bytes()),
      Mebibytes(info.device_allocated_bytes()));
  if (info.snapshot_memory_bytes() > 0)
    text += fmt::format("snapshots: {} of {} in use\n", Mebibytes(info.snapshot_memory_used_bytes()),
                        Mebibytes(info.snapshot_memory_bytes()));
  for (const v1::ModelUse& use : info.models()) {
    text += fmt::format("\n{} ({})\n", use.model().name(), use.model().mixer());
    text += fmt::format("  slots:     {} of {} free\n", use.slots_free(), use.slots_total());
    if (use.kv_blocks_total() > 0)
      text += fmt::format("  kv blocks: {} of {} free\n", use.kv_blocks_free(), use.kv_blocks_total());
    text += fmt::format("  sessions:  {}\n", use.sessions());
    text += fmt::format("  state:     {}\n", StateText(use.model().state()));
    text +=
        fmt::format("  requests:  {} running, {} waiting\n", use.requests_running(), use.requests_waiting());
    text += fmt::format("  tokens:    {} prompt, {} generated, in {} steps\n", use.prompt_tokens(),
                        use.generated_tokens(), use.steps());
    if (use.nonfinite_rows() > 0) text += fmt::format("  non-finite rows: {}\n", use.nonfinite_rows());
  }
  return text;
}

absl::Status RunInfo(bool quiet, Context* context) {
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect(kDefaultTimeout));
  WEIR_ASSIGN_OR_RETURN(const Health health, client.CheckHealth("", context->cancel()));
  const bool serving = health == Health::kServing;
  const char* const name = serving ? "SERVING" : health == Health::kNotServing ? "NOT_SERVING" : "UNKNOWN";
  const absl::Status verdict =
      serving ? absl::OkStatus()
              : MakeError(
                    absl::StatusCode::kUnavailable, "NOT_SERVING",
                    fmt::format("the server at {} is {}: it loads models or drains", client.address(), name));
  if (quiet) return verdict;
  const absl::StatusOr<v1::ServerInfo> info = client.GetServerInfo(context->cancel());
  // A server that loads has no information yet, and that it loads is the better news.
  if (!info.ok() && serving) return info.status();
  if (context->json) {
    Json json = {{"health", name}};
    if (info.ok()) json["server"] = ToJson(*info);
    context->out.WriteLine(JsonLine(json));
  } else {
    context->out.WriteLine(
        fmt::format("health:   {}{}", name, info.ok() && info->draining() ? " (draining)" : ""));
    if (info.ok()) context->out.Write(InfoText(*info));
  }
  return verdict;
}

}  // namespace

void AddInfoCommand(CLI::App* app, Context* context) {
  CLI::App* sub = app->add_subcommand("info", "Health, capacity and use of the server.");
  auto quiet = std::make_shared<bool>(false);
  sub->add_flag("-q,--quiet", *quiet, "Only the exit status, and errors: 0 when the server is SERVING.");
  sub->footer(std::string(kInfoFooter));
  sub->callback([quiet, context] { context->action = [=] { return RunInfo(*quiet, context); }; });
}

}  // namespace weir
