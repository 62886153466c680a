#include "server/access/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <charconv>
#include <cmath>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/access/read_file.h"
#include "server/frontend/names.h"
#include "server/option_values.h"

namespace weir {
namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::string_view kSpace = " \t\r";

std::string_view NextWord(std::string_view* rest) {
  const size_t begin = std::min(rest->find_first_not_of(kSpace), rest->size());
  rest->remove_prefix(begin);
  const size_t end = std::min(rest->find_first_of(kSpace), rest->size());
  const std::string_view word = rest->substr(0, end);
  rest->remove_prefix(end);
  return word;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool ReadHash(std::string_view word, KeyHash* hash) {
  if (word.substr(0, kHashPrefix.size()) != kHashPrefix) return false;
  word.remove_prefix(kHashPrefix.size());
  if (word.size() != 2 * hash->size()) return false;
  for (size_t i = 0; i < hash->size(); ++i) {
    const int high = HexDigit(word[2 * i]), low = HexDigit(word[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*hash)[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

template <class T>
bool ReadNumber(std::string_view text, T limit, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out > 0 && *out <= limit;
}

absl::Status ReadLimit(std::string_view word, KeyLimits* limits) {
  constexpr int64_t kMany = 1'000'000'000'000;
  constexpr double kFast = 1e9;
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  bool good = false;
  if (name == "sessions") {
    good = ReadNumber(value, kMany, &limits->sessions);
  } else if (name == "state-bytes") {
    const absl::StatusOr<MemorySize> size = ParseMemorySize(value);
    good = size.ok() && size->share == 0;
    if (good) limits->state_bytes = size->bytes;
  } else if (name == "requests-per-second") {
    good = ReadNumber(value, kFast, &limits->requests_per_second);
  } else if (name == "burst") {
    good = ReadNumber(value, kFast, &limits->burst) && limits->burst >= 1;
  } else if (name == "tokens") {
    good = ReadNumber(value, kMany, &limits->tokens);
  } else {
    return absl::InvalidArgumentError(
        "one of its words is no limit; there are sessions=, state-bytes=, requests-per-second=, burst= and "
        "tokens=");
  }
  if (!good)
    return absl::InvalidArgumentError(fmt::format("the value of {}= is not a number {}{}", name,
                                                  name == "burst" ? "of at least 1" : "above zero",
                                                  name == "state-bytes" ? " of bytes, such as 64MiB" : ""));
  return absl::OkStatus();
}

// Quotes nothing of the line: somebody may have put a key there.
absl::StatusOr<ApiKey> ReadLine(std::string_view line) {
  ApiKey key;
  key.name = std::string(NextWord(&line));
  if (!IsValidId(key.name))
    return absl::InvalidArgumentError(fmt::format("does not begin with a name ({})", kIdPattern));
  if (!ReadHash(NextWord(&line), &key.hash))
    return absl::InvalidArgumentError(
        fmt::format("after the name {} there must stand sha256: and 64 hexadecimal digits, as "
                    "weir-server --new-api-key prints them",
                    key.name));
  for (std::string_view word = NextWord(&line); !word.empty(); word = NextWord(&line))
    WEIR_RETURN_IF_ERROR(ReadLimit(word, &key.limits));
  if (key.limits.burst > 0 && key.limits.requests_per_second == 0)
    return absl::InvalidArgumentError("burst needs requests-per-second");
  if (key.limits.burst == 0 && key.limits.requests_per_second > 0)
    key.limits.burst = std::max(1.0, std::ceil(key.limits.requests_per_second));
  return key;
}

absl::Status CheckAgainst(const std::vector<ApiKey>& keys, const ApiKey& added) {
  if (keys.size() >= KeyRing::kMaxKeys)
    return absl::InvalidArgumentError(fmt::format("more than {} keys", KeyRing::kMaxKeys));
  for (const ApiKey& key : keys) {
    if (key.hash == added.hash)
      return absl::InvalidArgumentError(fmt::format("{} has the key of {}", added.name, key.name));
    if (key.name == added.name && !(key.limits == added.limits))
      return absl::InvalidArgumentError(
          fmt::format("the keys of {} have different limits; give each the same", key.name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeyRing> KeyRing::Parse(std::string_view text) {
  KeyRing ring;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(kSpace) == std::string_view::npos) continue;
    absl::StatusOr<ApiKey> key = ReadLine(line);
    absl::Status status = key.ok() ? CheckAgainst(ring.keys_, *key) : key.status();
    if (!status.ok())
      return MakeError(absl::StatusCode::kInvalidArgument, "API_KEYS_INVALID",
                       fmt::format("line {}: {}", number, std::string(status.message())));
    ring.limits_[key->name] = key->limits;
    ring.keys_.push_back(*std::move(key));
  }
  if (ring.keys_.empty())
    return MakeError(absl::StatusCode::kInvalidArgument, "API_KEYS_INVALID",
                     "holds no key; make one with weir-server --new-api-key NAME");
  return ring;
}

absl::StatusOr<KeyRing> KeyRing::Read(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile("--api-keys", path, kMaxFileBytes));
  absl::StatusOr<KeyRing> ring = Parse(text);
  if (!ring.ok())
    return MakeError(absl::StatusCode::kInvalidArgument, "API_KEYS_INVALID",
                     fmt::format("--api-keys {}: {}", Quoted(path), std::string(ring.status().message())));
  return ring;
}

const ApiKey* KeyRing::Find(std::string_view key) const {
  const KeyHash hash = HashKey(key);
  const ApiKey* found = nullptr;
  for (const ApiKey& candidate : keys_)
    if (CRYPTO_memcmp(candidate.hash.data(), hash.data(), hash.size()) == 0) found = &candidate;
  return found;
}

KeyLimits KeyRing::LimitsOf(std::string_view name) const {
  const auto limits = limits_.find(std::string(name));
  return limits == limits_.end() ? KeyLimits() : limits->second;
}

KeyHash HashKey(std::string_view key) {
  KeyHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

absl::StatusOr<NewApiKey> MakeApiKey(std::string_view name) {
  if (!IsValidId(name))
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_OPTION",
                     fmt::format("{} is no name for a key ({})", Quoted(name), kIdPattern));
  std::array<unsigned char, 32> random;
  WEIR_CHECK(RAND_bytes(random.data(), static_cast<int>(random.size())) == 1);
  NewApiKey made;
  made.key = "weir_";
  for (const unsigned char byte : random) made.key += fmt::format("{:02x}", byte);
  OPENSSL_cleanse(random.data(), random.size());
  made.line = fmt::format("{} {}", name, kHashPrefix);
  for (const unsigned char byte : HashKey(made.key)) made.line += fmt::format("{:02x}", byte);
  return made;
}

}  // namespace weir
