#include "server/grpc/models_service.h"

#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/clock.h"
#include "server/frontend/call_record.h"
#include "server/frontend/model_calls.h"
#include "server/grpc/frontend_task.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/status.h"
#include "server/grpc/unary_turn.h"

namespace weir {
namespace {

class ScoreTurn final : public UnaryTurn {
 public:
  static ScoreTurn* Start(absl::StatusOr<AdmittedCall> call, const v1::ScoreRequest* request,
                          v1::ScoreResponse* response) {
    auto turn = std::make_shared<ScoreTurn>(response);
    turn->Own(turn, call.ok() ? call->info.deadline : absl::InfiniteFuture());
    if (call.ok()) {
      turn->Record(*call, "Score", "", request->prompt());
      call->frontend->Score(*request, std::move(call->info), turn);
    } else {
      turn->OnRefused(call.status());
    }
    HandOver(turn.get());
    return turn.get();
  }
  explicit ScoreTurn(v1::ScoreResponse* response) : response_(*response) {}

 private:
  void OnChunk(const StartedTurn& turn, const StreamChunk& chunk) override {
    if (!reader_) reader_.emplace(&turn);
    reader_->Add(chunk);
  }
  void OnFinish(const StartedTurn& /*turn*/, const weir::Finish& /*finish*/) override {
    response_ = reader_->Finish();
    FinishCall(absl::OkStatus());
  }

  v1::ScoreResponse& response_;
  std::optional<ScoreReader> reader_;
};

template <class Request, class Response, class F>
grpc::ServerUnaryReactor* AnswerAtOnce(grpc::CallbackServerContext* context, const Gate& gate,
                                       std::string_view method, std::string_view model,
                                       const Request& request, Response* response, F answer) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<AdmittedCall> call = gate.Admit(*context);
  absl::Status status = call.status();
  if (call.ok()) {
    CallRecord record(&call->frontend->options().calls, method, call->info);
    record.SetModel(model);
    absl::StatusOr<Response> result = answer(*call->frontend, request);
    status = result.status();
    if (result.ok()) *response = *std::move(result);
    record.End(status, MonotonicNow());
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ModelsService::GetModel(grpc::CallbackServerContext* context,
                                                  const v1::GetModelRequest* request, v1::Model* response) {
  return AnswerAtOnce(context, gate_, "GetModel", request->name(), *request, response, weir::GetModel);
}

grpc::ServerUnaryReactor* ModelsService::ListModels(grpc::CallbackServerContext* context,
                                                    const v1::ListModelsRequest* request,
                                                    v1::ListModelsResponse* response) {
  return AnswerAtOnce(context, gate_, "ListModels", "", *request, response, weir::ListModels);
}

grpc::ServerUnaryReactor* ModelsService::Tokenize(grpc::CallbackServerContext* context,
                                                  const v1::TokenizeRequest* request,
                                                  v1::TokenizeResponse* response) {
  return FrontendTask<v1::TokenizeResponse>::Start(
      gate_.Admit(*context), "Tokenize", request->model(), static_cast<int64_t>(request->ByteSizeLong()),
      response,
      [request](const Frontend& frontend, const CallInfo& call, const std::atomic<bool>& cancelled) {
        return weir::Tokenize(frontend, *request, call, cancelled);
      });
}

grpc::ServerUnaryReactor* ModelsService::Detokenize(grpc::CallbackServerContext* context,
                                                    const v1::DetokenizeRequest* request,
                                                    v1::DetokenizeResponse* response) {
  return FrontendTask<v1::DetokenizeResponse>::Start(
      gate_.Admit(*context), "Detokenize", request->model(), static_cast<int64_t>(request->ByteSizeLong()),
      response,
      [request](const Frontend& frontend, const CallInfo& call, const std::atomic<bool>& cancelled) {
        return weir::Detokenize(frontend, *request, call, cancelled);
      });
}

grpc::ServerUnaryReactor* ModelsService::Score(grpc::CallbackServerContext* context,
                                               const v1::ScoreRequest* request, v1::ScoreResponse* response) {
  return ScoreTurn::Start(gate_.Admit(*context), request, response);
}

}  // namespace weir
