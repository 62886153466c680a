#include "client/loadtest/other_clients.h"

#include <cstdlib>
#include <vector>

#include "client/loadtest/text_table.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "weir/v1/server_info.pb.h"

namespace weir {
namespace {

std::string ModelIdOf(const v1::ModelUse& use) {
  const std::string& name = use.model().name();
  return name.rfind("models/", 0) == 0 ? name.substr(7) : name;
}

// Counted when a turn begins, and when a token is drawn: neither depends on how prompts are cut into steps.
int64_t TokensAsked(const v1::ModelUse& use) { return use.prompt_tokens() + use.generated_tokens(); }

int64_t TurnsOf(const v1::ModelUse& use) { return use.requests_running() + use.requests_waiting(); }

void KeepFurthest(int64_t change, int64_t* furthest) {
  if (std::abs(change) > std::abs(*furthest)) *furthest = change;
}

std::string Plural(int64_t count, std::string_view word) {
  return fmt::format("{} {}{}", GroupedNumber(count), word, count == 1 ? "" : "s");
}

std::string_view MoreOrFewer(int64_t change) { return change > 0 ? "more" : "fewer"; }

}  // namespace

bool OtherClients::Busy(const v1::ServerInfo& info) {
  for (const v1::ModelUse& use : info.models())
    if (TurnsOf(use) > 0) return true;
  return false;
}

void OtherClients::Begin(const v1::ServerInfo& info) {
  models_.clear();
  for (const v1::ModelUse& use : info.models()) {
    Seen& seen = models_[ModelIdOf(use)];
    seen.tokens_before = TokensAsked(use);
    seen.sessions_before = use.sessions();
  }
  snapshots_before_ = info.snapshot_memory_used_bytes();
  snapshots_ = 0;
}

void OtherClients::ReadHeld(const v1::ServerInfo& info) {
  for (const v1::ModelUse& use : info.models()) {
    Seen& seen = models_[ModelIdOf(use)];
    KeepFurthest(use.sessions() - seen.sessions_before, &seen.sessions);
    if (ModelIdOf(use) == model_) continue;
    seen.tokens = std::max(seen.tokens, TokensAsked(use) - seen.tokens_before);
    seen.turns = std::max(seen.turns, TurnsOf(use));
  }
  KeepFurthest(info.snapshot_memory_used_bytes() - snapshots_before_, &snapshots_);
}

void OtherClients::ReadAtRest(const v1::ServerInfo& info, std::optional<int64_t> own_tokens) {
  ReadHeld(info);
  for (const v1::ModelUse& use : info.models()) {
    if (ModelIdOf(use) != model_ || !own_tokens) continue;
    Seen& seen = models_[model_];
    seen.tokens = std::max(seen.tokens, TokensAsked(use) - seen.tokens_before - *own_tokens);
    seen.turns = std::max(seen.turns, TurnsOf(use));
  }
}

void OtherClients::ReadWhileRunning(const v1::ServerInfo& info) { ReadHeld(info); }

std::string OtherClients::Text() const {
  std::vector<std::string> parts;
  for (const auto& [name, seen] : models_) {
    if (seen.sessions != 0)
      parts.push_back(fmt::format("{} of {} {}", Plural(std::abs(seen.sessions), "session"), name,
                                  MoreOrFewer(seen.sessions)));
    if (seen.tokens > 0) parts.push_back(fmt::format("{} of {}", Plural(seen.tokens, "token"), name));
    if (seen.turns > 0) parts.push_back(fmt::format("{} of {} at a time", Plural(seen.turns, "turn"), name));
  }
  if (snapshots_ != 0)
    parts.push_back(
        fmt::format("{} of snapshots {}", Plural(std::abs(snapshots_), "byte"), MoreOrFewer(snapshots_)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace weir
