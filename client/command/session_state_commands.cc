// weir sessions snapshot, snapshots, rollback, export, import and update.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/json.h"
#include "client/command/output_file.h"
#include "fmt/format.h"
#include "google/protobuf/util/time_util.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

using google::protobuf::util::TimeUtil;

constexpr int kPageSize = 1000;                  // the most that the server gives
constexpr size_t kPieceBytes = size_t{1} << 20;  // of one message

struct StateOptions {
  std::string session;
  std::string snapshot;
  std::string file;
  std::string id;
  std::string model;
  std::string etag;
  std::optional<absl::Duration> ttl;

  std::string name() const { return SessionResource(session); }
};

constexpr char kRow[] = "{:<64} {:>12} {:>12} {}";  // of the list

using Run = absl::Status (*)(const StateOptions&, Context*);

absl::Status RunSnapshot(const StateOptions& options, Context* context) {
  v1::CreateSnapshotRequest request;
  request.set_parent(options.name());
  request.set_snapshot_id(options.id);
  request.set_etag(options.etag);
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::Snapshot snapshot, client.CreateSnapshot(request, context->cancel()));
  if (context->json)
    context->WriteJson(snapshot);
  else
    context->out.WriteLine(snapshot.name());
  return absl::OkStatus();
}

}  // namespace

absl::Status GetSnapshot(const std::string& name, Context* context) {
  v1::GetSnapshotRequest request;
  request.set_name(name);
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::Snapshot snapshot, client.GetSnapshot(request, context->cancel()));
  if (context->json)
    context->WriteJson(snapshot);
  else
    context->out.Write(fmt::format(
        "name:          {}\nposition:      {}\nstate_bytes:   {}\ncreate_time:   {}\n", snapshot.name(),
        snapshot.position(), snapshot.state_bytes(), TimeUtil::ToString(snapshot.create_time())));
  return absl::OkStatus();
}

namespace {

absl::Status RunSnapshots(const StateOptions& options, Context* context) {
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  v1::ListSnapshotsRequest request;
  request.set_parent(options.name());
  request.set_page_size(kPageSize);
  do {
    WEIR_ASSIGN_OR_RETURN(const v1::ListSnapshotsResponse page,
                          client.ListSnapshots(request, context->cancel()));
    if (!context->json && request.page_token().empty())
      context->out.WriteLine(fmt::format(kRow, "NAME", "POSITION", "STATE_BYTES", "CREATED"));
    for (const v1::Snapshot& snapshot : page.snapshots()) {
      if (context->json)
        context->WriteJson(snapshot);
      else
        context->out.WriteLine(fmt::format(kRow, snapshot.name(), snapshot.position(), snapshot.state_bytes(),
                                           TimeUtil::ToString(snapshot.create_time())));
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && context->out.ok());
  return absl::OkStatus();
}

// One line about a session that changed; all of it with --json.
absl::Status WriteSession(const absl::StatusOr<v1::Session>& session, const std::string& line,
                          Context* context) {
  WEIR_RETURN_IF_ERROR(session.status());
  if (context->json)
    context->WriteJson(*session);
  else
    context->out.WriteLine(fmt::format("{} {}", session->name(), line));
  return absl::OkStatus();
}

absl::Status RunRollback(const StateOptions& options, Context* context) {
  v1::RollbackSessionRequest request;
  request.set_name(options.name());
  request.set_snapshot(SnapshotResource(options.session, options.snapshot));
  request.set_etag(options.etag);
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  const absl::StatusOr<v1::Session> session = client.RollbackSession(request, context->cancel());
  return WriteSession(session, session.ok() ? fmt::format("is at position {}", session->position()) : "",
                      context);
}

absl::Status RunUpdate(const StateOptions& options, Context* context) {
  v1::UpdateSessionRequest request;
  request.mutable_session()->set_name(options.name());
  request.mutable_session()->set_etag(options.etag);
  SetDuration(*options.ttl, request.mutable_session()->mutable_ttl());
  request.mutable_update_mask()->add_paths("ttl");
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  const absl::StatusOr<v1::Session> session = client.UpdateSession(request, context->cancel());
  return WriteSession(session, session.ok() ? "expires at " + TimeUtil::ToString(session->expire_time()) : "",
                      context);
}

absl::Status RunExport(const StateOptions& options, Context* context) {
  v1::ExportSessionRequest request;
  request.set_name(options.name());
  request.set_etag(options.etag);
  if (options.file == "-") {
    if (IsTerminal(STDOUT_FILENO))
      return UsageError("an exported session is no text for a terminal: name a file, or redirect the output");
    WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
    const auto write = [context](std::string_view data) {
      context->out.Write(data);
      return context->out.status();
    };
    return client.ExportSession(request, write, context->cancel()).status();
  }
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(options.file));
  const auto write = [&file](std::string_view data) { return file.Write(data); };
  WEIR_ASSIGN_OR_RETURN(const v1::Session session, client.ExportSession(request, write, context->cancel()));
  WEIR_RETURN_IF_ERROR(file.Commit());
  return WriteSession(
      session, fmt::format("at position {}: {} bytes", session.position(), session.export_bytes()), context);
}

// A file to be sent, or standard input.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      : path_(path), fd_(path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~InputFile() {
    if (fd_ > STDIN_FILENO) close(fd_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Its length; of what has none before its end, as the format's first bytes give it.
  absl::StatusOr<int64_t> Size() {
    struct stat info = {};
    if (fd_ < 0 || fstat(fd_, &info) != 0) return Refusal(errno);
    if (S_ISREG(info.st_mode) && path_ != "-") return info.st_size;
    WEIR_ASSIGN_OR_RETURN(begin_, ReadUpTo(kPieceBytes));
    uint32_t header_bytes = 0;
    int64_t body_bytes = 0;
    if (begin_.size() < 24 || begin_.substr(0, 8) != "WEIRSNAP")
      return UsageError(fmt::format("{} is no exported session", name()));
    std::memcpy(&header_bytes, begin_.data() + 12, sizeof(header_bytes));
    std::memcpy(&body_bytes, begin_.data() + 16, sizeof(body_bytes));
    return int64_t{header_bytes} + body_bytes + 8;
  }
  absl::StatusOr<std::string> Next() {
    if (!begin_.empty()) return std::exchange(begin_, {});
    return ReadUpTo(kPieceBytes);
  }

 private:
  std::string name() const { return path_ == "-" ? "standard input" : Quoted(path_); }
  absl::Status Refusal(int error) const {
    return UsageError(fmt::format("cannot read {}: {}", name(), std::strerror(error)));
  }
  absl::StatusOr<std::string> ReadUpTo(size_t bytes) {
    std::string out(bytes, '\0');
    size_t filled = 0;
    while (filled < bytes) {
      const ssize_t count = read(fd_, out.data() + filled, bytes - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Refusal(errno);
      if (count == 0) break;
      filled += static_cast<size_t>(count);
    }
    out.resize(filled);
    return out;
  }

  const std::string path_;
  const int fd_;
  std::string begin_;  // read already
};

absl::Status RunImport(const StateOptions& options, Context* context) {
  InputFile file(options.file);
  v1::ImportSessionRequest start;
  start.set_session_id(options.id);
  WEIR_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size == 0) return UsageError(fmt::format("{} is empty", Quoted(options.file)));
  start.set_total_bytes(size);
  if (!options.model.empty()) start.mutable_session()->set_model(ModelResource(options.model));
  if (options.ttl) SetDuration(*options.ttl, start.mutable_session()->mutable_ttl());
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  const auto next = [&file] { return file.Next(); };
  WEIR_ASSIGN_OR_RETURN(const v1::Session session, client.ImportSession(start, next, context->cancel()));
  if (context->json)
    context->WriteJson(session);
  else
    context->out.WriteLine(session.name());
  return absl::OkStatus();
}

CLI::App* AddSub(CLI::App* group, const char* name, const char* help, bool takes_session, Run run,
                 Context* context, const std::shared_ptr<StateOptions>& options) {
  CLI::App* sub = group->add_subcommand(name, help);
  if (takes_session)
    sub->add_option("SESSION", options->session, "Id of a session, or its name sessions/ID.")
        ->required()
        ->type_name("");
  sub->callback([=] { context->action = [=] { return run(*options, context); }; });
  return sub;
}

void AddEtag(CLI::App* sub, StateOptions* options) {
  sub->add_option("--etag", options->etag, "Refuse unless the session's etag is this one.")
      ->type_name("ETAG");
}

}  // namespace

void AddSessionStateCommands(CLI::App* group, Context* context) {
  auto options = std::make_shared<StateOptions>();
  CLI::App* snapshot =
      AddSub(group, "snapshot", "Keep a session's state on the server and print the snapshot's name.", true,
             RunSnapshot, context, options);
  snapshot->add_option("--id", options->id, "Id of the snapshot. Default: random.")->type_name("ID");
  AddEtag(snapshot, options.get());
  AddSub(group, "snapshots", "Print the snapshots of a session.", true, RunSnapshots, context, options);
  CLI::App* rollback = AddSub(group, "rollback", "Put a session back to one of its snapshots.", true,
                              RunRollback, context, options);
  rollback->add_option("SNAPSHOT", options->snapshot, "Id of the snapshot, or its name.")
      ->required()
      ->type_name("");
  AddEtag(rollback, options.get());
  CLI::App* update =
      AddSub(group, "update", "Change how long a session lives.", true, RunUpdate, context, options);
  AddTimeOption(
      update, "--ttl", [options](absl::Duration ttl) { options->ttl = ttl; },
      "The session ends when it is not used for so long, from now on.")
      ->required();
  AddEtag(update, options.get());
  CLI::App* exported =
      AddSub(group, "export", "Write a session to a file that `import` reads, here or on another server.",
             true, RunExport, context, options);
  exported
      ->add_option("FILE", options->file,
                   "The file, which appears when it is whole; - is standard output. It holds the "
                   "conversation's state: keep it private.")
      ->required()
      ->type_name("");
  AddEtag(exported, options.get());
  CLI::App* imported = AddSub(group, "import", "Make a session of an exported file and print its name.",
                              false, RunImport, context, options);
  imported->add_option("FILE", options->file, "The file; - is standard input.")->required()->type_name("");
  imported->add_option("--id", options->id, "Id of the new session. Default: random.")->type_name("ID");
  AddModelOption(imported, &options->model)
      ->description("The model. Default: the one that made the file, found by its fingerprint.");
  AddTimeOption(
      imported, "--ttl", [options](absl::Duration ttl) { options->ttl = ttl; },
      "The session ends when it is not used for so long. Default: the server's.");
}

}  // namespace weir
