// FrontendTask: a unary call whose work is done on the frontend's threads (Tokenize, Detokenize).
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/server_callback.h"
#include "server/frontend/frontend.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"

namespace weir {

// Owns itself until OnDone.
template <class Response>
class FrontendTask final : public grpc::ServerUnaryReactor {
 public:
  using Work =
      absl::AnyInvocable<absl::StatusOr<Response>(const Frontend&, const std::atomic<bool>& cancelled)>;

  // `bytes`: of the request, for the bound of the line. `response` lives until Finish.
  static FrontendTask* Start(absl::StatusOr<Frontend*> frontend, int64_t bytes, Response* response,
                             Work work) {
    std::shared_ptr<FrontendTask> task(new FrontendTask);
    task->self_ = task;
    if (!frontend.ok()) {
      task->Finish(ToGrpc(frontend.status()));
      HandOver(task.get());
      return task.get();
    }
    const absl::Status posted = (*frontend)->executor().Post(
        bytes, [task, frontend = *frontend, response, work = std::move(work)]() mutable {
          absl::StatusOr<Response> result = work(*frontend, task->cancelled_);
          if (result.ok()) *response = *std::move(result);
          task->Finish(ToGrpc(result.status()));
        });
    if (!posted.ok()) task->Finish(ToGrpc(posted));
    HandOver(task.get());
    return task.get();
  }

 private:
  FrontendTask() = default;
  void OnCancel() override {
    TakeOver(this);
    cancelled_.store(true);
    HandOver(this);
  }
  void OnDone() override {
    TakeOver(this);
    const std::shared_ptr<FrontendTask> last = std::move(self_);
  }

  std::shared_ptr<FrontendTask> self_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace weir
