// FrontendTask: a unary call whose work is done on the frontend's threads (Tokenize, Detokenize,
// GetServerInfo).
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/base/clock.h"
#include "server/frontend/call_record.h"
#include "server/frontend/frontend.h"
#include "server/grpc/gate.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"

namespace weir {

// Owns itself until OnDone.
template <class Response>
class FrontendTask final : public grpc::ServerUnaryReactor {
 public:
  using Work = absl::AnyInvocable<absl::StatusOr<Response>(const Frontend&, const CallInfo&,
                                                           const std::atomic<bool>& cancelled)>;

  // `method` names the call in the log. `bytes`: of the request, for the bound of the line. `response` lives
  // until Finish.
  static FrontendTask* Start(absl::StatusOr<AdmittedCall> call, std::string_view method,
                             std::string_view model, int64_t bytes, Response* response, Work work) {
    std::shared_ptr<FrontendTask> task(new FrontendTask);
    task->self_ = task;
    if (!call.ok()) {
      task->Finish(ToGrpc(call.status()));
      HandOver(task.get());
      return task.get();
    }
    task->record_ = CallRecord(&call->frontend->options().calls, method, call->info);
    task->record_.SetModel(model);
    Frontend* const frontend = call->frontend;
    const absl::Status posted = frontend->executor().Post(
        bytes, [task, call = *std::move(call), response, work = std::move(work)]() mutable {
          absl::StatusOr<Response> result = work(*call.frontend, call.info, task->cancelled_);
          if (result.ok()) *response = *std::move(result);
          task->End(result.status());
        });
    if (!posted.ok()) {
      frontend->engine().metrics().rejections.Add(posted);
      task->End(posted);
    }
    HandOver(task.get());
    return task.get();
  }

 private:
  FrontendTask() = default;
  void End(const absl::Status& status) {
    record_.End(status, MonotonicNow());
    Finish(ToGrpc(status));
  }
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
  CallRecord record_;
};

}  // namespace weir
