#include "server/frontend/call_record.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "runtime/engine/engine_metrics.h"
#include "server/frontend/names.h"
#include "server/frontend/turn_messages.h"

namespace weir {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxPromptBytes = 4096;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// How a turn that finished well did so.
std::string OutcomeOf(std::string_view method, FinishReason reason) {
  const TurnEnding end = method == "Score"           ? TurnEnding::kScored
                         : method == "AppendSession" ? TurnEnding::kAppended
                                                     : TurnEndingOf(reason);
  return std::string(TurnEndingName(end));
}

double Milliseconds(absl::Duration duration) {
  return static_cast<double>(absl::ToInt64Microseconds(duration)) / 1000.0;
}

nlohmann::ordered_json Fields(const FinishedCall& call) {
  nlohmann::ordered_json fields = {{"method", call.method}, {"request_id", call.request_id}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) fields[name] = value;
  };
  add("trace_id", call.trace_id);
  add("owner", call.owner);
  add("model", call.model);
  add("session", call.session);
  add("new_session", call.new_session);
  add("snapshot", call.snapshot);
  add("code", call.code);
  if (call.prompt_tokens) {
    fields["prompt_tokens"] = *call.prompt_tokens;
    fields["reused_tokens"] = call.reused_tokens;
    fields["generated_tokens"] = call.generated_tokens;
  }
  if (call.bytes) fields["bytes"] = *call.bytes;
  add(call.failed ? "error" : "finish_reason", call.outcome);
  if (call.first_token) fields["first_token_ms"] = Milliseconds(*call.first_token);
  fields["duration_ms"] = Milliseconds(call.duration);
  add("prompt", call.prompt);
  return fields;
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool ReadsOnly(std::string_view method) {
  return method.substr(0, 3) == "Get" || method.substr(0, 4) == "List" || method == "Tokenize" ||
         method == "Detokenize";
}

std::string CallAsText(const FinishedCall& call) {
  std::string text;
  const nlohmann::ordered_json fields = Fields(call);
  for (const auto& [name, value] : fields.items()) {
    const bool plain = value.is_string() && name != "prompt";
    text +=
        fmt::format("{}{}={}", text.empty() ? "" : " ", name, plain ? value.get<std::string>() : Dump(value));
  }
  return text;
}

std::string CallAsJson(const FinishedCall& call) {
  const std::string object = Dump(Fields(call));
  return object.substr(1, object.size() - 2);
}

CallRecord::CallRecord(const CallLog* log, std::string_view method, const CallInfo& call) {
  if (!log->sink) return;
  log_ = log;
  arrival_ = call.arrival;
  call_.method = method;
  call_.request_id = call.request_id;
  call_.trace_id = call.trace_id;
  call_.owner = call.owner;
}

void CallRecord::SetName(std::string_view name) {
  if (log_ == nullptr) return;
  if (const std::optional<SnapshotIds> ids = SnapshotIdsOf(name)) {
    call_.session = ids->session;
    call_.snapshot = ids->snapshot;
  } else if (const std::optional<std::string> id = SessionIdOf(name)) {
    call_.session = *id;
  }
}

void CallRecord::SetModel(std::string_view name) {
  if (log_ != nullptr) call_.model = ModelIdOf(name).value_or("");
}

void CallRecord::SetRequest(const std::string& session_name, const v1::Prompt& prompt) {
  if (log_ == nullptr) return;
  SetName(session_name);
  if (log_->prompts) call_.prompt = std::string(WholeCharacters(prompt.text(), kMaxPromptBytes));
}

void CallRecord::SetTurn(const StartedTurn& turn) {
  if (log_ == nullptr) return;
  call_.model = turn.model->name;
  call_.session = turn.session;
}

void CallRecord::Add(const StreamChunk& chunk, absl::Time now) {
  if (log_ == nullptr) return;
  if (chunk.info) {
    call_.prompt_tokens = chunk.info->prompt_tokens;
    call_.reused_tokens = chunk.info->reused_tokens;
  }
  const bool generates = call_.method == "Generate";
  if (generates && !chunk.token_ids.empty()) {
    call_.generated_tokens += static_cast<int64_t>(chunk.token_ids.size());
    if (!call_.first_token) call_.first_token = now - arrival_;
  }
  if (chunk.finish) call_.outcome = OutcomeOf(call_.method, chunk.finish->reason);
}

void CallRecord::End(const absl::Status& status, absl::Time now) {
  const CallLog* const log = std::exchange(log_, nullptr);
  if (log == nullptr) return;
  call_.failed = !status.ok();
  call_.code = absl::StatusCodeToString(status.code());
  if (call_.failed) call_.outcome = ReasonOrCode(status);
  call_.duration = now - arrival_;
  log->sink(call_);
}

std::string UsableRequestId(std::string_view from_client) {
  const bool usable = !from_client.empty() && from_client.size() <= kMaxRequestId &&
                      std::all_of(from_client.begin(), from_client.end(), [](char c) {
                        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                               c == '.' || c == '_' || c == ':' || c == '-';
                      });
  return usable ? std::string(from_client) : RandomId();
}

// 00-{32 hex}-{16 hex}-{2 hex}; later versions may go on behind that.
std::string TraceIdOf(std::string_view traceparent) {
  if (traceparent.size() < 55 || !IsHex(traceparent.substr(0, 2)) || traceparent.substr(0, 2) == "ff")
    return "";
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return "";
  const std::string_view id = traceparent.substr(3, 32);
  if (!IsHex(id) || id.find_first_not_of('0') == std::string_view::npos) return "";
  return std::string(id);
}

}  // namespace weir
