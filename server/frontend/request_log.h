// RequestLog: what was answered to requests that carry a request_id (AIP-155), so that a repeat runs nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "server/frontend/violations.h"

namespace weir {

template <class Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

// Any thread. Memory is bounded: at most `max_requests` answers, a few KiB each; the oldest is forgotten
// first.
class RequestLog {
 public:
  struct Limits {
    int max_requests = 4096;
    absl::Duration window = absl::Minutes(10);  // from the end of a request
  };
  // `remember`: a repeat within the window gets this answer too, instead of running.
  template <class Response>
  using Finish = absl::AnyInvocable<void(absl::StatusOr<Response>, bool remember)>;

  // Called, on any thread, with what is refused for want of room.
  using OnFull = std::function<void(const absl::Status&)>;

  RequestLog() : limits_() {}
  explicit RequestLog(const Limits& limits, OnFull on_full = {})
      : limits_(limits), on_full_(std::move(on_full)) {}

  // Calls `start(Finish<Response>)` for the first of its id and owner, which has to finish once. A repeat
  // gets its answer from the log, or when the first has one; INVALID_ARGUMENT when the rest of it differs.
  template <class Response, class Start>
  void Run(const google::protobuf::Message& request, const std::string& request_id, const std::string& owner,
           Reply<Response> reply, Start start) {
    std::string key = KeyOf(request_id, owner);
    Waiter waiter = [reply = std::move(reply)](const absl::StatusOr<std::string>& answer) mutable {
      if (!answer.ok()) return reply(answer.status());
      Response response;
      response.ParseFromString(*answer);
      reply(std::move(response));
    };
    if (!Begin(key, BodyHash(request), std::move(waiter), MonotonicNow())) return;
    start([this, key = std::move(key)](absl::StatusOr<Response> response, bool remember) {
      End(key, response.ok() ? absl::StatusOr<std::string>(response->SerializeAsString()) : response.status(),
          remember, MonotonicNow());
    });
  }

  // Below: what Run() is made of, for tests with a clock of their own.
  using Waiter = absl::AnyInvocable<void(const absl::StatusOr<std::string>&)>;
  // True when the caller has to run it and call End(); otherwise `waiter` was called, or will be.
  bool Begin(const std::string& key, uint64_t body_hash, Waiter waiter, absl::Time now);
  void End(const std::string& key, absl::StatusOr<std::string> answer, bool remember, absl::Time now);
  int64_t size() const;

  static std::string KeyOf(std::string_view request_id, std::string_view owner);
  static uint64_t BodyHash(const google::protobuf::Message& request);

 private:
  struct Entry {
    uint64_t body_hash = 0;
    bool running = true;
    std::vector<Waiter> waiters;  // while it runs
    std::shared_ptr<const absl::StatusOr<std::string>> answer;
    absl::Time end;
    std::list<std::string>::iterator place;  // in ended_
  };
  void Forget(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  const OnFull on_full_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<std::string> ended_ ABSL_GUARDED_BY(mu_);  // keys, oldest first
};

// A violation for what is neither empty nor a UUID.
void CheckRequestId(std::string_view request_id, FieldViolations* violations);

}  // namespace weir
