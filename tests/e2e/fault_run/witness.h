// Witness: a client that goes on as usual while something else goes wrong.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace weir::testing {

// All that a talk of two seeded turns in a session of its own gave. Equal means equal to the last bit.
struct Testimony {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;
  bool operator==(const Testimony&) const = default;
};

// Has the same talk with one model over and over, on a thread of its own. Made, started and stopped by one
// thread.
class Witness {
 public:
  Witness(WeirClient client, const std::string& model);
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // The talk as it goes while nobody else is there; every later one is compared with it.
  absl::Status TalkAlone();
  // Returns when a talk is under way. A talk that is refused for want of room counts as none if it
  // `may_wait`.
  void Start(bool may_wait = false);
  // Returns when the talk that is under way has ended. Its thread's complaint, or OK.
  absl::Status Stop();
  // Since Start().
  int talks() const { return talks_.load(); }
  // False once it has been stopped or has a complaint.
  bool talking() const { return talking_.load(); }
  const Testimony& alone() const { return alone_; }

 private:
  absl::StatusOr<Testimony> Talk();
  absl::Status Turn(const std::string& session, const std::string& prompt, uint64_t seed,
                    Testimony* testimony);
  void Run(bool may_wait);

  const WeirClient client_;
  const std::string model_;
  Testimony alone_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> under_way_{false};
  std::atomic<int> talks_{0};
  std::atomic<bool> talking_{false};
  absl::Status complaint_;
  std::thread thread_;
};

}  // namespace weir::testing
