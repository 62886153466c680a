// weir loadtest: measures a server under load.
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/help.h"
#include "client/command/loadtest_options.h"
#include "client/command/output_file.h"
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
constexpr int kColumns = 120;  // of a terminal that does not say

int TerminalColumns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumns;
}

// Files are opened before the test, so that hours of it do not end with a folder that is not there.
class ReportFile {
 public:
  absl::Status Open(const std::string& path) {
    if (path.empty()) return absl::OkStatus();
    absl::StatusOr<OutputFile> file = OutputFile::Create(path);
    if (!file.ok()) return UsageError(std::string(file.status().message()));
    file_.emplace(*std::move(file));
    return absl::OkStatus();
  }
  absl::Status Write(std::string_view text) {
    if (!file_) return absl::OkStatus();
    WEIR_RETURN_IF_ERROR(file_->Write(text));
    return file_->Commit();
  }
  bool wanted() const { return file_.has_value(); }

 private:
  std::optional<OutputFile> file_;
};

std::string JsonText(const Report& report) {
  return ReportJson(report).dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                                 nlohmann::json::error_handler_t::replace) +
         "\n";
}

LoadtestHooks HooksOf(const LoadtestCommandOptions& options, Context* context) {
  LoadtestHooks hooks;
  hooks.interrupted = [context] { return context->cancel()->cancelled(); };
  if (options.quiet) return hooks;
  const bool terminal = IsTerminal(STDERR_FILENO);
  hooks.live = [table = std::make_shared<LiveTable>(terminal)](const std::string& phase,
                                                               const std::vector<LiveRow>& rows, bool ended) {
    WriteAll(STDERR_FILENO, table->Draw(phase, rows, ended, MonotonicNow(), TerminalColumns()));
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
  const bool json_out = context->json || options.json_file == "-";
  context->json = json_out;
  if (json_out && options.json_file == "-") options.json_file.clear();
  WEIR_RETURN_IF_ERROR(CompleteLoadtestOptions(&options));
  options.run.phase.timeout = context->timeout.value_or(absl::InfiniteDuration());
  ReportFile json, csv, html;
  WEIR_RETURN_IF_ERROR(json.Open(options.json_file));
  WEIR_RETURN_IF_ERROR(csv.Open(options.csv_file));
  WEIR_RETURN_IF_ERROR(html.Open(options.html_file));

  WEIR_ASSIGN_OR_RETURN(LoadtestOutcome outcome, RunOnServer(options, context));
  Report& report = outcome.report;
  report.command = "weir" + context->command_line;
  report.server_address = TargetOf(context->server).value_or(context->server);
  context->out.Write(json_out ? JsonText(report) : ReportTable(report));
  if (json.wanted()) WEIR_RETURN_IF_ERROR(json.Write(JsonText(report)));
  if (csv.wanted()) WEIR_RETURN_IF_ERROR(csv.Write(ReportCsv(report)));
  if (html.wanted()) WEIR_RETURN_IF_ERROR(html.Write(RenderHtmlReport(ReportJson(report))));
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
