#include "client/cancel_token.h"

#include <algorithm>

namespace weir {

void CancelToken::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  // Under the lock, so that no context is destroyed meanwhile; TryCancel does not call back.
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

bool CancelToken::cancelled() const {
  MutexLock lock(&mu_);
  return cancelled_;
}

void CancelToken::Attach(grpc::ClientContext* context) {
  MutexLock lock(&mu_);
  contexts_.push_back(context);
  if (cancelled_) context->TryCancel();
}

void CancelToken::Detach(grpc::ClientContext* context) {
  MutexLock lock(&mu_);
  contexts_.erase(std::remove(contexts_.begin(), contexts_.end(), context), contexts_.end());
}

}  // namespace weir
