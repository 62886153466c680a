// weir sessions: conversations whose state stays on the server.
#include <algorithm>
#include <limits>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/time/clock.h"
#include "client/command/commands.h"
#include "client/command/help.h"
#include "client/command/json.h"
#include "client/command/number_option.h"
#include "client/command/prompt_input.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "google/protobuf/util/time_util.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

using google::protobuf::util::TimeUtil;

constexpr int kPageSize = 1000;  // the most that the server gives

struct SessionOptions {
  std::string session;             // of commands on one session
  std::vector<std::string> names;  // of delete
  std::string id;
  std::string model;
  std::string etag;
  std::string request_id;
  std::optional<absl::Duration> ttl;
  std::optional<int64_t> expected_position;
  int64_t limit = std::numeric_limits<int64_t>::max();  // of list
  PromptOptions prompt;

  std::string name() const { return SessionResource(session); }
};

constexpr char kRow[] = "{:<44} {:<24} {:>12} {:>12} {:<5} {}";  // of the list

using Run = absl::Status (*)(const SessionOptions&, Context*);

std::string SessionText(const v1::Session& session) {
  std::string text =
      fmt::format("name:          {}\nmodel:         {}\nposition:      {}\nstate_bytes:   {}\n",
                  session.name(), session.model(), session.position(), session.state_bytes());
  text += fmt::format("export_bytes:  {}\nsnapshots:     {} bytes\n", session.export_bytes(),
                      session.snapshot_bytes());
  text += fmt::format("busy:          {}\netag:          {}\n", session.busy(), session.etag());
  if (session.has_create_time())
    text += fmt::format("create_time:   {}\n", TimeUtil::ToString(session.create_time()));
  if (session.has_expire_time())
    text += fmt::format("expire_time:   {}\n", TimeUtil::ToString(session.expire_time()));
  if (session.recent_token_ids_size() > 0)
    text += fmt::format("recent_tokens: {}\n", fmt::join(session.recent_token_ids(), " "));
  return text;
}

// The name alone, for $(…); everything with --json.
absl::Status WriteNew(const absl::StatusOr<v1::Session>& session, Context* context) {
  WEIR_RETURN_IF_ERROR(session.status());
  if (context->json)
    context->WriteJson(*session);
  else
    context->out.WriteLine(session->name());
  return absl::OkStatus();
}

absl::Status RunCreate(const SessionOptions& options, Context* context) {
  v1::CreateSessionRequest request;
  request.set_session_id(options.id);
  request.set_request_id(options.request_id);
  request.mutable_session()->set_model(ModelResource(options.model));
  if (options.ttl) SetDuration(*options.ttl, request.mutable_session()->mutable_ttl());
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  return WriteNew(client.CreateSession(request, context->cancel()), context);
}

absl::Status RunGet(const SessionOptions& options, Context* context) {
  if (options.name().find("/snapshots/") != std::string::npos) return GetSnapshot(options.name(), context);
  v1::GetSessionRequest request;
  request.set_name(options.name());
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::Session session, client.GetSession(request, context->cancel()));
  if (context->json)
    context->WriteJson(session);
  else
    context->out.Write(SessionText(session));
  return absl::OkStatus();
}

absl::Status RunList(const SessionOptions& options, Context* context) {
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  v1::ListSessionsRequest request;
  int64_t left = options.limit;
  do {
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(left, kPageSize)));
    WEIR_ASSIGN_OR_RETURN(const v1::ListSessionsResponse page,
                          client.ListSessions(request, context->cancel()));
    if (!context->json && request.page_token().empty())
      context->out.WriteLine(
          fmt::format(kRow, "NAME", "MODEL", "POSITION", "STATE_BYTES", "BUSY", "EXPIRES"));
    for (const v1::Session& session : page.sessions()) {
      if (left-- == 0) return absl::OkStatus();
      if (context->json)
        context->WriteJson(session);
      else
        context->out.WriteLine(fmt::format(kRow, session.name(), session.model(), session.position(),
                                           session.state_bytes(), session.busy() ? "yes" : "no",
                                           TimeUtil::ToString(session.expire_time())));
    }
    request.set_page_token(page.next_page_token());
  } while (left > 0 && !request.page_token().empty() && context->out.ok());
  return absl::OkStatus();
}

absl::Status DeleteOne(const WeirClient& client, const std::string& name, const std::string& etag,
                       Context* context) {
  if (name.find("/snapshots/") != std::string::npos) {
    v1::DeleteSnapshotRequest request;
    request.set_name(name);
    return client.DeleteSnapshot(request, context->cancel());
  }
  v1::DeleteSessionRequest request;
  request.set_name(name);
  request.set_etag(etag);
  return client.DeleteSession(request, context->cancel());
}

// One that cannot be deleted, as it may have expired just now, does not keep the others.
absl::Status RunDelete(const SessionOptions& options, Context* context) {
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  absl::Status result;
  for (const std::string& id_or_name : options.names) {
    const std::string name = SessionResource(id_or_name);
    const absl::Status status = DeleteOne(client, name, options.etag, context);
    if (!status.ok()) {
      // The last one's report is that of the command.
      if (!result.ok()) context->Report(result);
      result = status;
      if (absl::IsCancelled(status) || absl::IsUnavailable(status)) break;
      continue;
    }
    if (context->json) context->out.WriteLine(JsonLine(Json{{"deleted", name}}));
  }
  return result;
}

absl::Status RunAppend(const SessionOptions& options, Context* context) {
  v1::AppendSessionRequest request;
  request.set_name(options.name());
  request.set_etag(options.etag);
  request.set_request_id(options.request_id);
  if (options.expected_position) request.set_expected_position(*options.expected_position);
  WEIR_ASSIGN_OR_RETURN(const std::optional<v1::Prompt> prompt,
                        ReadPrompt(options.prompt, /*may_be_missing=*/false));
  *request.mutable_prompt() = *prompt;
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::AppendSessionResponse response,
                        client.AppendSession(request, context->cancel()));
  if (context->json)
    context->WriteJson(response);
  else
    context->out.WriteLine(fmt::format("{} tokens appended; position {}", response.appended_tokens(),
                                       response.session().position()));
  return absl::OkStatus();
}

absl::Status RunFork(const SessionOptions& options, Context* context) {
  v1::ForkSessionRequest request;
  request.set_name(options.name());
  request.set_session_id(options.id);
  request.set_etag(options.etag);
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  return WriteNew(client.ForkSession(request, context->cancel()), context);
}

// `takes_id`: the command works on one session, its first argument.
CLI::App* AddSub(CLI::App* app, const char* name, const char* help, bool takes_id, Run run, Context* context,
                 const std::shared_ptr<SessionOptions>& options) {
  CLI::App* sub = app->add_subcommand(name, help);
  if (takes_id)
    sub->add_option("SESSION", options->session, "Id of a session, or its name sessions/ID.")
        ->required()
        ->type_name("");
  sub->callback([=] { context->action = [=] { return run(*options, context); }; });
  return sub;
}

void AddId(CLI::App* sub, SessionOptions* options) {
  sub->add_option("--id", options->id, "Id of the new session. Default: random.")->type_name("ID");
}

void AddRequestId(CLI::App* sub, SessionOptions* options) {
  sub->add_option("--request-id", options->request_id,
                  "A UUID for this one request: repeated with the same one, it runs once.")
      ->type_name("UUID");
}

void AddEtag(CLI::App* sub, SessionOptions* options) {
  sub->add_option("--etag", options->etag, "Refuse unless the session's etag is this one.")
      ->type_name("ETAG");
}

}  // namespace

void AddSessionsCommand(CLI::App* app, Context* context) {
  auto options = std::make_shared<SessionOptions>();
  CLI::App* group =
      app->add_subcommand("sessions", "Create, inspect, extend, fork, keep, move and delete sessions.");
  group->require_subcommand(1);
  group->footer(std::string(kSessionsFooter));
  CLI::App* create = AddSub(group, "create", "Claim state for a session and print its name.", false,
                            RunCreate, context, options);
  AddModelOption(create, &options->model);
  AddId(create, options.get());
  AddRequestId(create, options.get());
  AddTimeOption(
      create, "--ttl", [options](absl::Duration ttl) { options->ttl = ttl; },
      "The session ends when it is not used for so long. Default: the server's.");
  AddSub(group, "get", "Print a session, or the snapshot of that name.", true, RunGet, context, options);
  CLI::App* list =
      AddSub(group, "list", "Print the sessions of this owner, by name.", false, RunList, context, options);
  AddNumberOption<int64_t>(
      list, "--limit", "N", {.low = 1}, [options](int64_t v) { options->limit = v; },
      "Print at most N. Default: all.");
  CLI::App* remove = AddSub(group, "delete", "Delete sessions or snapshots and free their state.", false,
                            RunDelete, context, options);
  remove
      ->add_option("SESSION", options->names,
                   "Ids of sessions, or their names sessions/ID; names of snapshots.")
      ->required()
      ->type_name("");
  AddEtag(remove, options.get());
  CLI::App* append =
      AddSub(group, "append", "Add text to a session without generating.", true, RunAppend, context, options);
  AddPromptOptions(append, &options->prompt, "PROMPT");
  AddEtag(append, options.get());
  AddRequestId(append, options.get());
  AddNumberOption<int64_t>(
      append, "--expected-position", "N", {.low = 0},
      [options](int64_t v) { options->expected_position = v; },
      "Refuse unless the session stands at this position.");
  CLI::App* fork =
      AddSub(group, "fork", "Copy a session and print the copy's name.", true, RunFork, context, options);
  AddId(fork, options.get());
  AddEtag(fork, options.get());
  AddSessionStateCommands(group, context);
}

}  // namespace weir
