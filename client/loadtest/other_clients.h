// OtherClients: what others than the load test have had the server do meanwhile, by the server's own
// counters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace weir {

namespace v1 {
class ServerInfo;
}

// Memory that a server takes for others is nothing that can be told of a model. What others hold without
// touching it (sessions that were there before, and stay as they are) does no harm.
class OtherClients {
 public:
  // `model` is the id of the one that the load test uses.
  explicit OtherClients(std::string model) : model_(std::move(model)) {}

  // Whether a turn of any model runs or waits.
  static bool Busy(const v1::ServerInfo& info);

  // What later readings are held against, with the load test's sessions made and no turn of it running.
  void Begin(const v1::ServerInfo& info);
  // No turn of the load test runs; since Begin it has had `own_tokens` of prompts and generated ones computed
  // for its model. Nothing: it is not known how many.
  void ReadAtRest(const v1::ServerInfo& info, std::optional<int64_t> own_tokens);
  // Turns of the load test run, so that its model's tokens and turns tell nothing.
  void ReadWhileRunning(const v1::ServerInfo& info);

  bool seen() const { return !Text().empty(); }
  // "2 sessions of m more, 300 tokens of n"; empty: nothing was seen of others.
  std::string Text() const;

 private:
  struct Seen {
    int64_t tokens_before = 0;
    int64_t sessions_before = 0;
    // Since Begin; of sessions what is furthest from those before.
    int64_t tokens = 0;
    int64_t sessions = 0;
    int64_t turns = 0;  // at the same time
  };
  void ReadHeld(const v1::ServerInfo& info);

  const std::string model_;
  std::map<std::string, Seen> models_;
  int64_t snapshots_before_ = 0;  // bytes
  int64_t snapshots_ = 0;         // furthest from those before
};

}  // namespace weir
