#include "server/frontend/request_log.h"

#include <algorithm>
#include <cctype>

#include "absl/hash/hash.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "server/frontend/names.h"

namespace weir {

std::string RequestLog::KeyOf(std::string_view request_id, std::string_view owner) {
  std::string key(request_id);
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
  return key.append(owner);  // the id has a fixed length
}

uint64_t RequestLog::BodyHash(const google::protobuf::Message& request) {
  std::string body = request.GetDescriptor()->full_name();
  google::protobuf::io::StringOutputStream stream(&body);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  request.SerializeToCodedStream(&coded);
  coded.Trim();
  return absl::HashOf(body);
}

void RequestLog::Forget(absl::Time now) {
  while (!ended_.empty()) {
    const auto oldest = entries_.find(ended_.front());
    const bool full = static_cast<int>(entries_.size()) >= limits_.max_requests;
    if (!full && now - oldest->second.end < limits_.window) return;
    entries_.erase(oldest);
    ended_.pop_front();
  }
}

bool RequestLog::Begin(const std::string& key, uint64_t body_hash, Waiter waiter, absl::Time now) {
  std::shared_ptr<const absl::StatusOr<std::string>> answer;
  bool full = false;
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(key);
    if (it != entries_.end() && !it->second.running && now - it->second.end >= limits_.window) {
      ended_.erase(it->second.place);
      entries_.erase(it);
      it = entries_.end();
    }
    if (it == entries_.end()) {
      Forget(now);
      if (static_cast<int>(entries_.size()) < limits_.max_requests) {
        Entry entry;
        entry.body_hash = body_hash;
        entry.waiters.push_back(std::move(waiter));
        entries_.emplace(key, std::move(entry));
        return true;
      }
      full = true;
      answer = std::make_shared<absl::StatusOr<std::string>>(
          MakeError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    fmt::format("{} requests with a request_id run already; retry later", entries_.size()),
                    {{"capacity", std::to_string(limits_.max_requests)}}, absl::Seconds(1)));
    } else if (it->second.body_hash != body_hash) {
      answer = std::make_shared<absl::StatusOr<std::string>>(
          InvalidField("request_id", "was used for another request; make up a new one for each"));
    } else if (it->second.running) {
      it->second.waiters.push_back(std::move(waiter));
      return false;
    } else {
      answer = it->second.answer;
    }
  }
  if (full && on_full_) on_full_(answer->status());
  waiter(*answer);
  return false;
}

void RequestLog::End(const std::string& key, absl::StatusOr<std::string> answer, bool remember,
                     absl::Time now) {
  const auto shared = std::make_shared<const absl::StatusOr<std::string>>(std::move(answer));
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mu_);
    const auto it = entries_.find(key);
    WEIR_CHECK(it != entries_.end() && it->second.running);
    Entry& entry = it->second;
    waiters = std::move(entry.waiters);
    if (remember) {
      entry.running = false;
      entry.answer = shared;
      entry.end = now;
      entry.waiters.clear();
      entry.place = ended_.insert(ended_.end(), key);
    } else {
      entries_.erase(it);
    }
  }
  for (Waiter& waiter : waiters) waiter(*shared);
}

int64_t RequestLog::size() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(entries_.size());
}

void CheckRequestId(std::string_view request_id, FieldViolations* violations) {
  if (!request_id.empty() && !IsRequestId(request_id))
    violations->Add("request_id", fmt::format("{} is not a UUID", Quoted(request_id)));
}

}  // namespace weir
