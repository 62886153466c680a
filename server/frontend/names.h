// Resource names: `models/{model}`, `sessions/{session}` and `sessions/{session}/snapshots/{snapshot}`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weir {

inline constexpr std::string_view kIdPattern = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}";

// Whether `id` matches kIdPattern.
bool IsValidId(std::string_view id);

// The id in `models/{id}` or `sessions/{id}`; nullopt when `name` is not of that form.
std::optional<std::string> ModelIdOf(std::string_view name);
std::optional<std::string> SessionIdOf(std::string_view name);

struct SnapshotIds {
  std::string session;
  std::string snapshot;
};
std::optional<SnapshotIds> SnapshotIdsOf(std::string_view name);

std::string ModelName(std::string_view id);
std::string SessionName(std::string_view id);
std::string SnapshotName(std::string_view session, std::string_view snapshot);

// Whether `id` is a UUID in its usual form (AIP-155), not the nil one.
bool IsRequestId(std::string_view id);

// 128 random bits as 32 hex digits, from the system's entropy source: a guessed id must not open a session.
std::string RandomId();
// For a fork: what stands before the first '.' of its parent's id, by which routers choose a server, and
// random bits behind it, 128 where they fit, at least 64; a RandomId() where those do not.
std::string RandomForkId(std::string_view parent);
// 64 bits from the same source.
uint64_t RandomSeed();

}  // namespace weir
