// SessionPool: the sessions that a phase makes for itself, and their end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/loadtest/loop.h"
#include "client/loadtest/transport.h"

namespace weir {

// On the Loop's thread. Has to outlive its calls: until `finished` came.
class SessionPool {
 public:
  SessionPool(std::string model, Loop* loop, Transport* transport);

  // Called with each session that was made, and how long that took.
  using Created = std::function<void(absl::Duration took)>;
  // Makes sessions until there are `count`, or until one is refused or `stop` says so; `finished` then. Many
  // calls at once. What is refused is in refused().
  void Create(int64_t count, std::function<bool()> stop, Created created, LoopTask finished);
  // Makes one more, whatever was refused before.
  void CreateOne(std::function<void(const absl::Status&, absl::Duration took)> finished);
  // Deletes all, those whose making has failed as well, since the server may have made them. One whose turn
  // the server has not ended yet is tried again for a while.
  void DeleteAll(LoopTask finished);
  // Deletes the last one only.
  void DeleteLast(std::function<void(const absl::Status&)> finished);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  const std::string& id(int64_t index) const { return ids_[static_cast<size_t>(index)]; }
  const absl::Status& refused() const { return refused_; }  // the first; OK: none
  // After DeleteAll: how many are not known to be gone, and the first reason.
  int64_t left_behind() const { return left_behind_; }
  const absl::Status& why_left() const { return why_left_; }
  // After DeleteAll: OK, or why a session could not even be deleted.
  const absl::Status& lost() const { return lost_; }

 private:
  void Delete(const std::string& id, absl::Duration until, std::function<void()> done);

  const std::string model_;
  Loop* const loop_;
  Transport* const transport_;
  std::vector<std::string> ids_;      // that the server has
  std::vector<std::string> unknown_;  // of calls that failed
  absl::Status refused_;
  int64_t left_behind_ = 0;
  absl::Status why_left_;
  absl::Status lost_;
};

// Calls of a pool at once: enough to keep a server busy, and no more than one connection carries.
inline constexpr int64_t kCallsAtOnce = 256;
// Of calls that do not wait for the model.
inline constexpr absl::Duration kShortCall = absl::Seconds(30);

}  // namespace weir
