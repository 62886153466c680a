#include "server/access/authenticator.h"

#include <strings.h>

#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr std::string_view kBearer = "Bearer ";  // RFC 6750; the scheme's name has no case
constexpr size_t kMaxKeyBytes = 512;

absl::Status Unauthenticated(std::string_view reason, std::string_view message) {
  return MakeError(absl::StatusCode::kUnauthenticated, reason, message);
}

absl::Status Invalid() {
  return Unauthenticated("API_KEY_INVALID",
                         "this API key is not known here: send a valid one as authorization: Bearer KEY "
                         "metadata (weir: --api-key-file or WEIR_API_KEY)");
}

}  // namespace

Authenticator::Authenticator(KeyRing keys) : keys_(std::make_shared<const KeyRing>(std::move(keys))) {}

std::shared_ptr<const KeyRing> Authenticator::Keys() const {
  MutexLock lock(&mu_);
  return keys_;
}

absl::StatusOr<Caller> Authenticator::Admit(const std::vector<std::string_view>& authorization,
                                            absl::Time now) {
  if (authorization.empty())
    return Unauthenticated("API_KEY_MISSING",
                           "this server wants an API key: send it as authorization: Bearer KEY metadata "
                           "(weir: --api-key-file or WEIR_API_KEY)");
  std::string_view key = authorization[0];
  const bool bearer =
      key.size() > kBearer.size() && strncasecmp(key.data(), kBearer.data(), kBearer.size()) == 0;
  if (authorization.size() > 1 || !bearer) return Invalid();
  key.remove_prefix(kBearer.size());
  if (key.size() > kMaxKeyBytes) return Invalid();
  const std::shared_ptr<const KeyRing> keys = Keys();
  const ApiKey* found = keys->Find(key);
  if (found == nullptr) return Invalid();

  const KeyLimits& limits = found->limits;
  if (limits.requests_per_second > 0) {
    absl::Duration wait;
    {
      MutexLock lock(&mu_);
      wait = buckets_[found->name].Take(limits.requests_per_second, limits.burst, now);
    }
    if (wait > absl::ZeroDuration())
      return MakeError(absl::StatusCode::kResourceExhausted, "RATE_LIMITED",
                       fmt::format("more than the {:g} requests a second that this key may make; try again "
                                   "in {}",
                                   limits.requests_per_second, absl::FormatDuration(wait)),
                       {{"api_key", found->name},
                        {"requests_per_second", fmt::format("{:g}", limits.requests_per_second)},
                        {"burst", fmt::format("{:g}", limits.burst)}},
                       wait);
  }
  return Caller{found->name, limits.tokens};
}

void Authenticator::Replace(KeyRing keys) {
  auto fresh = std::make_shared<const KeyRing>(std::move(keys));
  MutexLock lock(&mu_);
  keys_ = std::move(fresh);
  // A removed name that comes back has a full bucket again, which is no gain for its holder.
  absl::erase_if(buckets_,
                 [&](const auto& bucket) { return keys_->LimitsOf(bucket.first).requests_per_second == 0; });
}

}  // namespace weir
