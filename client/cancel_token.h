// CancelToken: lets any thread end the calls that were started with it.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "grpcpp/client_context.h"
#include "runtime/base/mutex.h"

namespace weir {

// Owned by the caller, who keeps it alive until the calls that use it have returned. Every method may be
// called from any thread, but not from a signal handler: wait for signals in a thread instead.
class CancelToken {
 public:
  CancelToken() = default;
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;

  // Ends running calls with CANCELLED; later calls with this token end at once. Idempotent.
  void Cancel();
  bool cancelled() const;

 private:
  friend class CancelScope;
  void Attach(grpc::ClientContext* context);
  void Detach(grpc::ClientContext* context);

  mutable Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mu_);
};

// Holds one call's context to a token for as long as the call runs. `token` may be null.
class CancelScope {
 public:
  CancelScope(CancelToken* token, grpc::ClientContext* context) : token_(token), context_(context) {
    if (token_ != nullptr) token_->Attach(context_);
  }
  ~CancelScope() {
    if (token_ != nullptr) token_->Detach(context_);
  }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  CancelToken* const token_;
  grpc::ClientContext* const context_;
};

}  // namespace weir
