#include "server/frontend/frontend.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/frontend/names.h"
#include "server/frontend/validate.h"

namespace weir {
namespace {

// A turn that its client has just cancelled ends at the engine's next step, and each look takes one.
constexpr int kBusyLooks = 4;

}  // namespace

absl::Status CheckAlive(bool cancelled, absl::Time deadline, std::string_view what) {
  if (MonotonicNow() >= deadline)
    return MakeError(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                     fmt::format("the deadline passed {}", what));
  if (cancelled)
    return MakeError(absl::StatusCode::kCancelled, "CANCELLED",
                     fmt::format("the client cancelled the call {}", what));
  return absl::OkStatus();
}

void CheckSessionHint(std::string_view hint, std::string_view id, FieldViolations* violations) {
  if (hint.empty()) return;
  const std::string bare = SessionIdOf(hint).value_or(std::string(hint));
  if (bare == id) return;
  violations->Add("x-session-id",
                  id.empty()
                      ? fmt::format("the metadata names {}, the request no session", Quoted(hint, 80))
                      : fmt::format("the metadata names {}, the request sessions/{}", Quoted(hint, 80), id));
}

Frontend::Frontend(Engine* engine, std::vector<LoadedModel> models, const FrontendOptions& options)
    : engine_(engine),
      models_(std::move(models)),
      options_(options),
      metrics_(models_.size()),
      request_log_(RequestLog::Limits(),
                   [engine](const absl::Status& refusal) { engine->metrics().rejections.Add(refusal); }),
      executor_(options.executor) {
  WEIR_CHECK(models_.size() == engine_->models().size());
  for (const EngineModel& model : engine_->models())
    max_turns_ += model.limits.slots + model.limits.max_waiting;
}

void Frontend::Generate(const v1::GenerateRequest& request, CallInfo call,
                        std::shared_ptr<TurnClient> client) {
  TurnRequest turn;
  turn.model = &request.model();
  turn.session = &request.session();
  turn.prompt = &request.prompt();
  turn.sampling = &request.sampling();
  turn.stop = &request.stop();
  turn.output = &request.output();
  turn.etag = &request.etag();
  if (request.has_expected_position()) turn.expected_position = request.expected_position();
  Start(turn, std::move(call), std::move(client));
}

void Frontend::Append(const v1::AppendSessionRequest& request, CallInfo call,
                      std::shared_ptr<TurnClient> client) {
  TurnRequest turn;
  turn.session = &request.name();
  turn.session_field = "name";
  turn.prompt = &request.prompt();
  turn.etag = &request.etag();
  if (request.has_expected_position()) turn.expected_position = request.expected_position();
  Start(turn, std::move(call), std::move(client));
}

void Frontend::Score(const v1::ScoreRequest& request, CallInfo call, std::shared_ptr<TurnClient> client) {
  TurnRequest turn;
  turn.model = &request.model();
  turn.prompt = &request.prompt();
  turn.score = true;
  Start(turn, std::move(call), std::move(client));
}

absl::StatusOr<TurnTicket> Frontend::TakeTicket() const {
  if (engine_->draining())
    return MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                     "the server is shutting down and takes no new work; another one may", {},
                     absl::Seconds(1));
  const int64_t taken = turns_->fetch_add(1, std::memory_order_acq_rel);
  TurnTicket ticket(turns_);
  if (taken >= max_turns_)
    return MakeError(
        absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
        fmt::format("{} turns run or wait, which is all that this server holds; retry later", taken),
        {{"turns", std::to_string(taken)}, {"capacity", std::to_string(max_turns_)}}, absl::Seconds(1));
  return ticket;
}

void Frontend::Refuse(const TurnRequest& request, const std::optional<SessionInfo>& session,
                      absl::Status status, TurnClient* client) {
  const bool given_up = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  absl::StatusOr<int> model = absl::UnknownError("");
  if (given_up && session)
    model = session->model;
  else if (given_up && request.model)
    model = ResolveModel(*request.model, "model");
  // It was taken: its client is what ended it.
  if (model.ok())
    metrics_.AddGivenUp(static_cast<size_t>(*model), absl::IsCancelled(status));
  else
    engine_->metrics().rejections.Add(status);
  client->OnRefused(std::move(status));
}

void Frontend::Start(TurnRequest request, CallInfo call, std::shared_ptr<TurnClient> client) {
  absl::StatusOr<TurnTicket> ticket = TakeTicket();
  if (!ticket.ok()) return Refuse(request, std::nullopt, ticket.status(), client.get());
  std::optional<std::string> id;
  if (request.session) id = SessionIdOf(*request.session);
  if (id)
    LookUpSession(*std::move(id), kBusyLooks, *std::move(ticket), request, std::move(call),
                  std::move(client));
  else
    PostPrepare(std::nullopt, *std::move(ticket), request, std::move(call), std::move(client));
}

void Frontend::LookUpSession(std::string id, int attempts, TurnTicket ticket, TurnRequest request,
                             CallInfo call, std::shared_ptr<TurnClient> client) {
  std::string owner = call.owner;
  auto done = [this, id, attempts, ticket = std::move(ticket), request, call = std::move(call),
               client = std::move(client)](absl::StatusOr<SessionInfo> session) mutable {
    if (!session.ok()) return Refuse(request, std::nullopt, session.status(), client.get());
    if (session->busy && attempts > 1)
      return LookUpSession(std::move(id), attempts - 1, std::move(ticket), request, std::move(call),
                           std::move(client));
    if (session->busy)
      return Refuse(
          request, *session,
          MakeError(
              absl::StatusCode::kAborted, "SESSION_BUSY",
              fmt::format("sessions/{} has a turn running or waiting; wait until it ends, or cancel it", id),
              {{"session", SessionName(id)}, {"position", std::to_string(session->position)}}),
          client.get());
    PostPrepare(*std::move(session), std::move(ticket), request, std::move(call), std::move(client));
  };
  engine_->GetSession(id, std::move(owner), std::move(done));
}

void Frontend::PostPrepare(std::optional<SessionInfo> session, TurnTicket ticket, TurnRequest request,
                           CallInfo call, std::shared_ptr<TurnClient> client) {
  const auto bytes = static_cast<int64_t>(request.prompt->ByteSizeLong());
  auto task = [this, session = std::move(session), ticket = std::move(ticket), request,
               call = std::move(call), client]() mutable {
    absl::StatusOr<Prepared> prepared = Prepare(request, session, call, *client);
    if (!prepared.ok()) return Refuse(request, session, prepared.status(), client.get());
    std::weak_ptr<TurnClient> weak = client;
    auto stream = engine_->Submit(std::move(prepared->params), [weak] {
      if (auto strong = weak.lock()) strong->OnReadable();
    });
    if (!stream.ok()) return Refuse(request, session, stream.status(), client.get());
    prepared->turn.stream = *std::move(stream);
    prepared->turn.ticket = std::move(ticket);
    client->OnStarted(std::move(prepared->turn));
  };
  if (absl::Status status = executor_.Post(bytes, std::move(task)); !status.ok())
    Refuse(request, std::nullopt, std::move(status), client.get());
}

absl::StatusOr<Frontend::Prepared> Frontend::Prepare(const TurnRequest& request,
                                                     const std::optional<SessionInfo>& session,
                                                     const CallInfo& call, const TurnClient& client) const {
  WEIR_RETURN_IF_ERROR(CheckAlive(client.cancelled().load(), call.deadline, "before the turn began"));
  Prepared prepared;
  WEIR_RETURN_IF_ERROR(Validate(request, session, call, &prepared));
  WEIR_ASSIGN_OR_RETURN(prepared.params.prompt,
                        Tokenize(*prepared.turn.model, *request.prompt, session && session->position > 0,
                                 call.deadline, client.cancelled()));
  WEIR_RETURN_IF_ERROR(CheckTokens(request, session, prepared));
  WEIR_RETURN_IF_ERROR(LimitTokens(request, call, &prepared.params));

  TurnParams& params = prepared.params;
  params.owner = call.owner;
  params.deadline = call.deadline;
  params.arrival = call.arrival;
  params.score = request.score;
  if (request.etag) params.etag = *request.etag;
  if (session) {
    params.session = session->id;
    // Tokens depend on whether the session had any, so the turn goes where it was looked at or nowhere.
    params.expected_position = request.expected_position.value_or(session->position);
  }
  StartedTurn& turn = prepared.turn;
  turn.session = params.session;
  turn.session_was_empty = !session || session->position == 0;
  turn.seed = params.sampling.seed;
  if (request.stop) turn.stop_strings.assign(request.stop->strings().begin(), request.stop->strings().end());
  turn.max_tokens = params.max_tokens;
  turn.max_time = params.max_time;
  if (request.score) turn.prompt = params.prompt;
  return prepared;
}

absl::Status Frontend::Validate(const TurnRequest& request, const std::optional<SessionInfo>& session,
                                const CallInfo& call, Prepared* prepared) const {
  FieldViolations violations;
  if (!session && request.session && (!request.session->empty() || request.session_field == "name"))
    violations.Add(request.session_field,
                   fmt::format("{} is not of the form sessions/{}", Quoted(*request.session), kIdPattern));
  if (request.session) CheckSessionHint(call.session_hint, session ? session->id : "", &violations);

  absl::Status not_found;
  int index = session ? session->model : -1;
  if (request.model && !(session && request.model->empty())) {
    const absl::StatusOr<int> resolved = ResolveModel(*request.model, "model");
    if (!resolved.ok()) {
      if (resolved.status().code() == absl::StatusCode::kNotFound) not_found = resolved.status();
      for (const FieldViolation& v : GetFieldViolations(resolved.status()))
        violations.Add(v.field, v.description);
    } else if (session && *resolved != session->model) {
      violations.Add("model",
                     fmt::format("the session belongs to {}", ModelName(models_[session->model].name)));
    } else {
      index = *resolved;
    }
  }
  if (!session && request.expected_position) violations.Add("expected_position", "needs a session");
  if (!session && request.etag && !request.etag->empty()) violations.Add("etag", "needs a session");
  if (request.expected_position && *request.expected_position < 0)
    violations.Add("expected_position", "must not be negative");
  // Without a model of its own a request is still checked against the first, so that all faults show at once.
  const LoadedModel& model = models_[std::max(index, 0)];
  if (request.stop) {
    ReadStop(*request.stop, model, &prepared->params, &violations);
    ReadSampling(*request.sampling, *request.output, *request.stop, model, &prepared->params.sampling,
                 &violations);
  }
  CheckPrompt(*request.prompt, model, options_.max_text_bytes, &violations);
  WEIR_RETURN_IF_ERROR(violations.ToStatus());
  WEIR_RETURN_IF_ERROR(not_found);
  prepared->params.model = index;
  prepared->turn.model = &model;
  return absl::OkStatus();
}

absl::Status Frontend::CheckTokens(const TurnRequest& request, const std::optional<SessionInfo>& session,
                                   const Prepared& prepared) const {
  const int64_t position = session ? session->position : 0;
  const auto num_tokens = static_cast<int64_t>(prepared.params.prompt.size());
  if (num_tokens == 0 && (position == 0 || !request.stop))
    return InvalidField("prompt", position == 0
                                      ? "has no tokens, and there is nothing before it to continue from"
                                      : "has no tokens to append");
  if (request.score && num_tokens < 2)
    return InvalidField("prompt",
                        "has one token; a score needs at least two, since the first is context only");
  if (request.score && num_tokens > options_.max_score_tokens)
    return InvalidField("prompt", fmt::format("has {} tokens; this server scores at most {} at once",
                                              num_tokens, options_.max_score_tokens));
  const int64_t limit = prepared.turn.model->decoder->context_limit();
  if (limit > 0 && position + num_tokens > limit) {
    std::string before = position > 0 ? fmt::format(" after the session's {}", position) : "";
    return InvalidField("prompt", fmt::format("has {} tokens{}; the context of {} holds {}", num_tokens,
                                              before, ModelName(prepared.turn.model->name), limit));
  }
  return absl::OkStatus();
}

absl::Status Frontend::LimitTokens(const TurnRequest& request, const CallInfo& call,
                                   TurnParams* params) const {
  const int64_t limit = call.max_request_tokens;
  if (limit == 0) return absl::OkStatus();
  const auto prompt = static_cast<int64_t>(params->prompt.size());
  // A client that names no number gets what its key allows.
  if (request.stop && !request.stop->has_max_tokens() && prompt < limit)
    params->max_tokens = std::min(params->max_tokens, limit - prompt);
  if (prompt + params->max_tokens <= limit) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, "TOKEN_LIMIT_EXCEEDED",
                   fmt::format("{} tokens in the prompt and up to {} of output are more than the {} that one "
                               "request of this key may have; shorten the prompt or ask for fewer max_tokens",
                               prompt, params->max_tokens, limit),
                   {{"api_key", call.owner},
                    {"tokens", std::to_string(prompt + params->max_tokens)},
                    {"limit", std::to_string(limit)}});
}

absl::StatusOr<int> Frontend::ResolveModel(const std::string& name, std::string_view field) const {
  std::string known;
  for (const LoadedModel& model : models_) known += (known.empty() ? "" : ", ") + ModelName(model.name);
  if (name.empty()) {
    if (models_.size() == 1) return 0;
    return InvalidField(field, fmt::format("is empty; this server has {}", known));
  }
  const std::optional<std::string> id = ModelIdOf(name);
  if (!id)
    return InvalidField(field, fmt::format("{} is not of the form models/{{model}}; this server has {}",
                                           Quoted(name), known));
  for (size_t i = 0; i < models_.size(); ++i)
    if (models_[i].name == *id) return static_cast<int>(i);
  return MakeError(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                   fmt::format("{} is not served here; this server has {}", Quoted(name), known),
                   {{"model", name}});
}

absl::StatusOr<std::vector<int32_t>> Frontend::Tokenize(const LoadedModel& model, const v1::Prompt& prompt,
                                                        bool continuation, absl::Time deadline,
                                                        const std::atomic<bool>& cancelled) const {
  if (prompt.has_token_ids())
    return std::vector<int32_t>(prompt.token_ids().ids().begin(), prompt.token_ids().ids().end());
  if (!prompt.has_text()) return std::vector<int32_t>();
  Tokenizer::EncodeOptions options;
  options.add_special_tokens = prompt.has_add_special_tokens() ? prompt.add_special_tokens() : !continuation;
  options.parse_special = prompt.parse_special();
  options.continuation = continuation;
  options.cancelled = &cancelled;  // set at the deadline too
  const absl::Time begin = MonotonicNow();
  absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode(prompt.text(), options);
  metrics_.ObserveTokenization(MonotonicNow() - begin);
  WEIR_RETURN_IF_ERROR(CheckAlive(cancelled.load(), deadline, "while the prompt was tokenized"));
  if (!ids.ok() && ids.status().code() == absl::StatusCode::kInvalidArgument)
    return InvalidField("prompt.text", std::string(ids.status().message()));
  return ids;
}

}  // namespace weir
