// The kinds of values that options take, read from text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

// Bytes, or a share of the memory that the process may use.
struct MemorySize {
  int64_t bytes = 0;
  double share = 0;  // above 0: in place of bytes
  int64_t Resolve(int64_t memory_limit) const {
    return share > 0 ? static_cast<int64_t>(share * static_cast<double>(memory_limit)) : bytes;
  }
};

// "512MiB", "2G", "1.5GiB" (K, M, G and T are 1024-based with and without iB; KB, MB, GB and TB 1000-based),
// "1000000", "25%".
absl::StatusOr<MemorySize> ParseMemorySize(std::string_view text);

// "30s", "1h30m", "500ms"; above zero.
absl::StatusOr<absl::Duration> ParsePositiveDuration(const std::string& text);
// The same, or 0s.
absl::StatusOr<absl::Duration> ParseDelay(const std::string& text);

struct NamedFolder {
  std::string name;
  std::string folder;
};

// "name=folder" or "folder", which is then named after its last component.
absl::StatusOr<NamedFolder> ParseModel(std::string_view text);

struct TokenizerChoice {
  std::string model;   // empty: every model whose folder has none
  std::string folder;  // empty: token ids only ("none")
};

// "[model=]folder" or "[model=]none".
absl::StatusOr<TokenizerChoice> ParseTokenizer(std::string_view text);

// Refuses what is not HOST:PORT, [IPV6]:PORT or unix:PATH.
absl::StatusOr<std::string> ParseListen(std::string_view text);

// Whether only this machine can reach `listen`: localhost, 127.0.0.0/8, [::1] or a unix socket.
bool IsLoopback(std::string_view listen);

}  // namespace weir
