// What all subcommands share: the global options, the connection and the streams.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/command/interrupt.h"
#include "client/command/output.h"
#include "google/protobuf/message.h"

namespace weir {

// Lives in main, used by the main thread.
class Context {
 public:
  // Options.
  std::string server = "127.0.0.1:7070";
  TlsOptions tls;
  std::string api_key_file;
  std::string api_key;  // of the environment
  bool json = false;
  std::optional<absl::Duration> timeout;

  // The subcommand that was chosen, run after parsing.
  std::function<absl::Status()> action;

  Output out;

  // The words behind `weir`, as a shell would take them.
  std::string command_line;
  // How long after Ctrl-C the process may still run; see Interrupt.
  absl::Duration interrupt_grace = absl::Seconds(2);

  // From here on Ctrl-C cancels calls instead of ending the process. `default_timeout` holds without
  // --timeout.
  absl::StatusOr<WeirClient> Connect(absl::Duration default_timeout = absl::InfiniteDuration());

  // What Connect() connects with, for others who do.
  absl::StatusOr<ConnectOptions> PrepareToConnect(absl::Duration default_timeout = absl::InfiniteDuration());
  // Of a connection that did not come about: what the command line is to blame for is a UsageError.
  static absl::Status ConnectError(const absl::Status& status);

  CancelToken* cancel() { return &cancel_; }
  // The signal that came since Connect, or 0.
  int signal() const { return interrupt_ ? interrupt_->signal() : 0; }

  // To standard error, as a line of text or of JSON.
  void Report(const absl::Status& status) const;
  // One JSON object on a line of its own.
  void WriteJson(const google::protobuf::Message& message);

 private:
  CancelToken cancel_;
  std::optional<Interrupt> interrupt_;
};

// 30s, 1m30s, 500ms, or a plain number of seconds.
absl::StatusOr<absl::Duration> ParseTime(const std::string& text);

}  // namespace weir
