// Notifier: the thread that tells the network what the engine did. The engine hands it one list per step, so
// that waking readers costs the engine one lock and not one write each.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/token_stream.h"

namespace weir {

// What one step has to tell. Owned by the engine thread; its vectors go back and forth, so that they do not
// allocate.
struct WakeList {
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<absl::AnyInvocable<void()>> replies;
  bool empty() const { return streams.empty() && replies.empty(); }
};

class Notifier {
 public:
  Notifier() : thread_([this] { Run(); }) {}
  ~Notifier() { Stop(); }

  // Engine thread. Leaves *list empty.
  void Post(WakeList* list);
  // Delivers what is left, then ends the thread.
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar wake_;
  WakeList waiting_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir
