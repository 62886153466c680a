// CallRecord: what the log says of one call when it has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/frontend/turn_client.h"
#include "weir/v1/generation.pb.h"

namespace weir {

// Empty and absent parts are not known: a call may be refused before anybody has looked at it.
struct FinishedCall {
  std::string_view method;
  std::string request_id;
  std::string trace_id;  // W3C trace context
  std::string owner;
  std::string model;
  std::string session;      // id, of the session that the call is about
  std::string new_session;  // of a fork
  std::string snapshot;     // id
  std::optional<int64_t> prompt_tokens;
  int64_t reused_tokens = 0;
  int64_t generated_tokens = 0;
  std::optional<int64_t> bytes;  // of an export or import
  std::string code;              // of its status
  std::string outcome;  // how a turn finished, as in weir_requests_total, or the reason of the call's error
  bool failed = false;
  std::optional<absl::Duration> first_token;  // from the call's arrival
  absl::Duration duration;
  std::string prompt;  // text, cut; only where prompts are logged
};

// Nothing is other than before: a Get, a List, a Tokenize.
bool ReadsOnly(std::string_view method);

struct CallLog {
  // Any thread; must not block. Empty: nothing is logged.
  std::function<void(const FinishedCall& call)> sink;
  bool prompts = false;
};

// key=value pairs, and the members of a JSON object without its braces.
std::string CallAsText(const FinishedCall& call);
std::string CallAsJson(const FinishedCall& call);

// Owner: one call; used by one thread at a time.
class CallRecord {
 public:
  CallRecord() = default;  // says nothing
  // `log` outlives this.
  CallRecord(const CallLog* log, std::string_view method, const CallInfo& call);

  // What the request names: `sessions/{session}`, with or without a snapshot behind it. What is no such name
  // is not noted.
  void SetName(std::string_view name);
  void SetNewSession(const std::string& id) { call_.new_session = id; }
  void SetModel(std::string_view name);  // models/{model}
  void SetBytes(int64_t bytes) { call_.bytes = bytes; }
  // The same of a turn, before it begins.
  void SetRequest(const std::string& session_name, const v1::Prompt& prompt);
  void SetTurn(const StartedTurn& turn);
  void Add(const StreamChunk& chunk, absl::Time now);
  // The call's status. Only the first one counts.
  void End(const absl::Status& status, absl::Time now);

 private:
  const CallLog* log_ = nullptr;
  absl::Time arrival_;
  FinishedCall call_;
};

// What a client may say of itself in `x-request-id`; a made-up id otherwise.
std::string UsableRequestId(std::string_view from_client);
// The trace's id in a `traceparent`; empty when it is not well-formed.
std::string TraceIdOf(std::string_view traceparent);

}  // namespace weir
