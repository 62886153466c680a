// weir loadtest: measures a server under load.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/help.h"
#include "client/command/loadtest_options.h"
#include "client/command/report_files.h"
#include "client/connect.h"
#include "client/loadtest/grpc_transport.h"
#include "client/loadtest/live_table.h"
#include "client/loadtest/report_csv.h"
#include "client/loadtest/report_html.h"
#include "client/loadtest/report_json.h"
#include "client/loadtest/report_table.h"
#include "fmt/format.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/write_all.h"

namespace weir {
namespace {

// Turns that are cancelled, sessions that are deleted, files that are written.
constexpr absl::Duration kInterruptGrace = absl::Seconds(30);

TerminalSize SizeOfTerminal() {
  winsize size = {};
  TerminalSize known;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return known;
  if (size.ws_col > 0) known.columns = size.ws_col;
  if (size.ws_row > 0) known.rows = size.ws_row;
  return known;
}

// A terminal whose cursor can be moved.
bool CanRedraw() {
  const char* const term = std::getenv("TERM");
  return IsTerminal(STDERR_FILENO) && term != nullptr && std::string_view(term) != "dumb";
}

std::string JsonText(const Report& report) {
  return ReportJson(report).dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                                 nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string ReportText(const std::string& option, const Report& report) {
  if (option == "--csv") return ReportCsv(report);
  return option == "--html" ? RenderHtmlReport(ReportJson(report)) : JsonText(report);
}

LoadtestHooks HooksOf(const LoadtestCommandOptions& options, Context* context) {
  LoadtestHooks hooks;
  hooks.interrupted = [context] { return context->cancel()->cancelled(); };
  hooks.warn = [](const std::string& text) { Note("weir: warning: " + text); };
  if (options.quiet) return hooks;
  hooks.live = [table = std::make_shared<LiveTable>(CanRedraw())](
                   const std::string& phase, const std::vector<LiveRow>& rows, bool ended) {
    WriteAll(STDERR_FILENO, table->Draw(phase, rows, ended, MonotonicNow(), SizeOfTerminal()));
  };
  return hooks;
}

absl::StatusOr<LoadtestOutcome> RunOnServer(const LoadtestCommandOptions& options, Context* context) {
  context->interrupt_grace = kInterruptGrace;
  WEIR_ASSIGN_OR_RETURN(const ConnectOptions connect, context->PrepareToConnect());
  RealLoop loop;
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      ConnectGrpcTransport({.address = context->server,
                            .tls = connect.tls,
                            .api_key = connect.api_key,
                            .connect_timeout = connect.timeout,
                            .connections = options.connections,
                            .session_ttl = options.session_ttl},
                           &loop, context->cancel());
  if (!transport.ok()) return Context::ConnectError(transport.status());
  const LoadtestHooks hooks = HooksOf(options, context);
  absl::StatusOr<LoadtestOutcome> outcome = RunLoadtest(options.run, hooks, &loop, transport->get());
  if (outcome.status().code() == absl::StatusCode::kInvalidArgument)
    return UsageError(std::string(outcome.status().message()));
  return outcome;
}

absl::Status RunLoadtestCommand(LoadtestCommandOptions options, Context* context) {
  // Where the report is JSON, so are errors.
  context->json = context->json || options.json_file == "-";
  WEIR_RETURN_IF_ERROR(CompleteLoadtestOptions(&options));
  options.run.phase.timeout = context->timeout.value_or(absl::InfiniteDuration());
  options.run.growth.server = TargetOf(context->server).value_or(context->server);
  ReportFiles files;
  if (context->json) WEIR_RETURN_IF_ERROR(files.Open("--json", "-"));
  const std::vector<std::pair<std::string, std::string>> wanted = {
      {"--json", options.json_file}, {"--csv", options.csv_file}, {"--html", options.html_file}};
  for (const auto& [option, path] : wanted)
    if (!path.empty()) WEIR_RETURN_IF_ERROR(files.Open(option, path));

  WEIR_ASSIGN_OR_RETURN(LoadtestOutcome outcome, RunOnServer(options, context));
  Report& report = outcome.report;
  report.command = "weir" + context->command_line;
  report.server_address = TargetOf(context->server).value_or(context->server);
  if (!files.on_stdout()) context->out.Write(ReportTable(report));
  WEIR_RETURN_IF_ERROR(
      files.Write([&](const std::string& option) { return ReportText(option, report); }, &context->out));
  WEIR_RETURN_IF_ERROR(outcome.ended_early);
  return VerdictOf(report);
}

}  // namespace

void AddLoadtestCommand(CLI::App* app, Context* context) {
  auto options = std::make_shared<LoadtestCommandOptions>();
  CLI::App* sub =
      app->add_subcommand("loadtest", "Measure the server under load: latencies, throughput, errors.");
  AddLoadtestOptions(sub, options.get());
  sub->footer(std::string(kLoadtestFooter));
  sub->callback(
      [options, context] { context->action = [=] { return RunLoadtestCommand(*options, context); }; });
}

}  // namespace weir
