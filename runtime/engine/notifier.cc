#include "runtime/engine/notifier.h"

#include <iterator>
#include <utility>

namespace weir {

void Notifier::Post(WakeList* list) {
  if (list->empty()) return;
  {
    MutexLock lock(&mu_);
    if (waiting_.empty()) {
      std::swap(waiting_, *list);
    } else {
      waiting_.streams.insert(waiting_.streams.end(), std::make_move_iterator(list->streams.begin()),
                              std::make_move_iterator(list->streams.end()));
      waiting_.replies.insert(waiting_.replies.end(), std::make_move_iterator(list->replies.begin()),
                              std::make_move_iterator(list->replies.end()));
    }
  }
  wake_.NotifyOne();
  list->streams.clear();
  list->replies.clear();
}

void Notifier::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void Notifier::Run() {
  WakeList list;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !stop_) wake_.Wait(&mu_);
      if (waiting_.empty()) return;
      std::swap(list, waiting_);
    }
    for (auto& reply : list.replies) reply();
    for (auto& stream : list.streams) stream->Wake();
    list.streams.clear();
    list.replies.clear();
  }
}

}  // namespace weir
