// Authenticator: from the metadata of a call to its owner, or a refusal.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "server/access/api_keys.h"
#include "server/access/rate_limiter.h"

namespace weir {

struct Caller {
  std::string name;                // the key's
  int64_t max_request_tokens = 0;  // 0: any number
};

// Any thread; nothing here waits. Keys are never logged nor quoted.
class Authenticator {
 public:
  explicit Authenticator(KeyRing keys);

  // `authorization`: every value of that metadata. UNAUTHENTICATED (API_KEY_MISSING, API_KEY_INVALID), or
  // RESOURCE_EXHAUSTED (RATE_LIMITED) with the time to wait. Takes one request from the key's rate.
  absl::StatusOr<Caller> Admit(const std::vector<std::string_view>& authorization, absl::Time now);

  KeyLimits LimitsOf(std::string_view name) const { return Keys()->LimitsOf(name); }

  // From now on these keys hold. Rates go on where they stand.
  void Replace(KeyRing keys);

 private:
  std::shared_ptr<const KeyRing> Keys() const;

  mutable Mutex mu_;
  std::shared_ptr<const KeyRing> keys_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, TokenBucket> buckets_ ABSL_GUARDED_BY(mu_);  // by name
};

}  // namespace weir
