// SoakWorker: a client that has talks one after the other and ends many of them in one of the ways clients
// do.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/client.h"
#include "tests/e2e/soak/talk_template.h"

namespace weir::testing {

struct SoakCounts {
  int64_t talks = 0, turns = 0, cancelled = 0, past_deadline = 0, slow = 0, resumed = 0, tokens = 0;
  SoakCounts& operator+=(const SoakCounts& other);
};

// Runs on a thread of its own from Start() to Stop(). Whatever happens to a turn, what its client was told
// before is the beginning of what was recorded; a session is found where that says; and gone on with, it
// gives the rest of it.
class SoakWorker {
 public:
  // `address`: of the server. `talks` are recorded and outlive this.
  SoakWorker(std::string address, const std::vector<TalkTemplate>& talks, uint64_t seed);
  ~SoakWorker();
  SoakWorker(const SoakWorker&) = delete;
  SoakWorker& operator=(const SoakWorker&) = delete;

  void Start();
  // After the talk that is under way. Its complaint, which also ends it before, or OK.
  absl::Status Stop();
  bool talking() const { return talking_.load(); }
  // After Stop().
  const SoakCounts& counts() const { return counts_; }

 private:
  enum class Fate { kPlain, kCancel, kDeadline, kSlow };
  struct Heard;

  absl::Status Talk(const TalkTemplate& talk);
  absl::Status TalkInSession(const TalkTemplate& talk, std::vector<std::string>* sessions);
  absl::Status HaveTurn(const TalkTemplate& talk, Turn turn, const std::string& session);
  // The turn as its fate has it; OK when it came to its end.
  absl::Status Ask(const v1::GenerateRequest& request, Fate fate, Heard* heard);
  // Has what is still missing of `record` said.
  absl::Status Resume(const v1::GenerateRequest& request, const TurnRecord& record, const Heard& heard);
  absl::StatusOr<v1::Session> WaitUntilFree(const std::string& session) const;
  size_t Draw(size_t below) { return draw_() % below; }

  const std::string address_;
  const std::vector<TalkTemplate>& talks_;
  std::mt19937_64 draw_;
  std::vector<WeirClient>
      clients_;  // the first is patient; the others give each call so much time and no more
  std::atomic<bool> stop_{false};
  std::atomic<bool> talking_{false};
  SoakCounts counts_;
  absl::Status complaint_;
  std::thread thread_;
};

}  // namespace weir::testing
