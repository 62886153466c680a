// API keys: who may call and how much. A file holds one key a line, as its SHA-256 only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace weir {

// Of one key's owner; 0: no limit.
struct KeyLimits {
  int64_t sessions = 0;            // held at once
  int64_t state_bytes = 0;         // held at once, by sessions, their snapshots and turns without one
  double requests_per_second = 0;  // on the average
  double burst = 0;                // at once; with requests_per_second only, default one second's
  int64_t tokens = 0;              // of one request: prompt and output together

  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

using KeyHash = std::array<unsigned char, 32>;  // SHA-256

struct ApiKey {
  std::string name;  // the owner of what the key makes
  KeyHash hash = {};
  KeyLimits limits;
};

// What a file of keys says. Immutable.
class KeyRing {
 public:
  static constexpr size_t kMaxKeys = 4096;
  static constexpr int64_t kMaxFileBytes = int64_t{4} << 20;

  // Lines `NAME sha256:HEX [LIMIT=VALUE]…`; # begins a comment. A name on several lines has several keys,
  // with the same limits. INVALID_ARGUMENT names the line.
  static absl::StatusOr<KeyRing> Parse(std::string_view text);
  // INVALID_ARGUMENT names the file, also for one that cannot be read or holds no key.
  static absl::StatusOr<KeyRing> Read(const std::string& path);

  // Null when there is none. Looks at every key whatever it finds, each in the same time.
  const ApiKey* Find(std::string_view key) const;
  // No limits for a name of none.
  KeyLimits LimitsOf(std::string_view name) const;
  const std::vector<ApiKey>& keys() const { return keys_; }

 private:
  std::vector<ApiKey> keys_;
  absl::flat_hash_map<std::string, KeyLimits> limits_;  // by name
};

KeyHash HashKey(std::string_view key);

struct NewApiKey {
  std::string key;   // for the client; kept nowhere
  std::string line;  // for the file
};
// 256 random bits. INVALID_ARGUMENT when `name` is no valid name.
absl::StatusOr<NewApiKey> MakeApiKey(std::string_view name);

}  // namespace weir
