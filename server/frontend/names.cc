#include "server/frontend/names.h"

#include <sys/random.h>

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/check.h"

namespace weir {
namespace {

constexpr size_t kMaxIdBytes = 63;
constexpr std::string_view kModels = "models/";
constexpr std::string_view kSessions = "sessions/";
constexpr std::string_view kSnapshots = "/snapshots/";

bool IsAlnum(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

std::optional<std::string> IdOf(std::string_view name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (!IsValidId(name)) return std::nullopt;
  return std::string(name);
}

}  // namespace

bool IsValidId(std::string_view id) {
  if (id.empty() || id.size() > kMaxIdBytes || !IsAlnum(id[0])) return false;
  for (const char c : id)
    if (!IsAlnum(c) && c != '.' && c != '_' && c != '-') return false;
  return true;
}

std::optional<std::string> ModelIdOf(std::string_view name) { return IdOf(name, kModels); }
std::optional<std::string> SessionIdOf(std::string_view name) { return IdOf(name, kSessions); }

std::optional<SnapshotIds> SnapshotIdsOf(std::string_view name) {
  const size_t at = name.find(kSnapshots);
  if (at == std::string_view::npos) return std::nullopt;
  std::optional<std::string> session = SessionIdOf(name.substr(0, at));
  std::optional<std::string> snapshot = IdOf(name.substr(at), kSnapshots);
  if (!session || !snapshot) return std::nullopt;
  return SnapshotIds{*std::move(session), *std::move(snapshot)};
}

std::string ModelName(std::string_view id) { return std::string(kModels).append(id); }
std::string SessionName(std::string_view id) { return std::string(kSessions).append(id); }
std::string SnapshotName(std::string_view session, std::string_view snapshot) {
  return SessionName(session).append(kSnapshots).append(snapshot);
}

bool IsRequestId(std::string_view id) {
  if (id.size() != 36) return false;
  bool nil = true;
  for (size_t i = 0; i < id.size(); ++i) {
    const char c = id[i];
    const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (hyphen ? c != '-' : !hex) return false;
    nil = nil && (hyphen || c == '0');
  }
  return !nil;
}

uint64_t RandomSeed() {
  uint64_t bits = 0;
  WEIR_CHECK(getrandom(&bits, sizeof bits, 0) == sizeof bits);
  return bits;
}

std::string RandomId() {
  const uint64_t high = RandomSeed();
  return fmt::format("{:016x}{:016x}", high, RandomSeed());
}

std::string RandomForkId(std::string_view parent) {
  const std::string_view root = parent.substr(0, parent.find('.'));
  const size_t digits = std::min<size_t>(32, kMaxIdBytes - std::min(kMaxIdBytes, root.size() + 1));
  if (root.empty() || digits < 16) return RandomId();
  return fmt::format("{}.{}", root, std::string_view(RandomId()).substr(0, digits));
}

}  // namespace weir
