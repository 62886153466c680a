#include "client/loadtest/grpc_transport.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/call_context.h"
#include "client/client.h"
#include "client/connect.h"
#include "client/request_check.h"
#include "client/rpc_error.h"
#include "client/stream_check.h"
#include "fmt/format.h"
#include "grpcpp/client_context.h"
#include "runtime/base/error.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/server_info.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {
namespace {

constexpr int kCallsPerConnection = 1000;

// One connection. `calls` is counted on the Loop.
struct LoadConnection {
  explicit LoadConnection(const std::shared_ptr<grpc::Channel>& channel)
      : generation(v1::Generation::NewStub(channel)),
        sessions(v1::Sessions::NewStub(channel)),
        server(v1::Server::NewStub(channel)) {}
  const std::unique_ptr<v1::Generation::Stub> generation;
  const std::unique_ptr<v1::Sessions::Stub> sessions;
  const std::unique_ptr<v1::Server::Stub> server;
  int calls = 0;
};

// A call that was started. Made and ended on the Loop.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // On the Loop, once the call has ended.
  virtual void Deliver() = 0;

  grpc::ClientContext context;
  LoadConnection* connection = nullptr;

 protected:
  // Set by gRPC's thread before the call is pushed as ended.
  friend class CallInbox;
  absl::Duration at_;
};

class GrpcTurn;

// One thing that happened on a thread of gRPC. Without a turn: a call that ended.
struct CallEvent {
  enum class Kind { kPromptInfo, kDelta, kEnded };
  Kind kind;
  absl::Duration at;
  GrpcTurn* turn = nullptr;
  PendingCall* call = nullptr;
  int64_t tokens = 0;  // of the prompt, or of the delta
  int64_t reused = 0;
  bool has_text = false;
};

// Where gRPC's threads leave what happened; outlives the transport as long as one of them holds it.
class CallInbox : public std::enable_shared_from_this<CallInbox> {
 public:
  explicit CallInbox(Loop* loop) : loop_(loop) {}

  absl::Duration Now() const { return loop_->Now(); }

  void Push(CallEvent event) {
    const MutexLock lock(&mu_);
    if (closed_) return;
    const bool first = events_.empty();
    events_.push_back(event);
    if (first) loop_->Post([self = shared_from_this()] { self->Drain(); });
  }
  // The last that gRPC's thread does with the call.
  void PushEnded(PendingCall* call, absl::Duration at) {
    call->at_ = at;
    Push({.kind = CallEvent::Kind::kEnded, .at = at, .call = call});
    const MutexLock lock(&mu_);
    if (--running_ == 0) none_.NotifyAll();
  }
  void Started() {
    const MutexLock lock(&mu_);
    ++running_;
  }
  // Nothing is handed on any more.
  void Close() {
    const MutexLock lock(&mu_);
    closed_ = true;
  }
  void WaitUntilNoneRuns() {
    const MutexLock lock(&mu_);
    while (running_ > 0) none_.Wait(&mu_);
  }

  // On the Loop; set while the transport lives.
  std::function<void(const CallEvent&)> handle;

 private:
  void Drain() {
    std::vector<CallEvent> events;
    {
      const MutexLock lock(&mu_);
      events.swap(events_);
    }
    for (const CallEvent& event : events)
      if (handle) handle(event);
  }

  Loop* const loop_;
  Mutex mu_;
  CondVar none_;
  std::vector<CallEvent> events_ ABSL_GUARDED_BY(mu_);
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// As FromGrpc(), but for what gRPC's own texts say of a connection that broke: they go into reports, where a
// line of its sources helps nobody.
absl::Status EndOf(const grpc::Status& status, const std::string& address) {
  absl::Status error = FromGrpc(status, address);
  const ErrorDetails details = GetErrorDetails(error);
  if (details.reason == kConnectionLost)
    return MakeError(error.code(), kConnectionLost,
                     fmt::format("lost the connection to the Weir server at {}", address));
  const bool broken = absl::IsUnknown(error) || absl::IsInternal(error);
  if (broken && status.error_details().empty())
    return MakeError(error.code(), "",
                     fmt::format("a call to the Weir server at {} broke off without an answer", address));
  return error;
}

class GrpcTurn final : public PendingCall, public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  GrpcTurn(std::shared_ptr<CallInbox> inbox, const std::string& address, TurnObserver* observer)
      : inbox_(std::move(inbox)), address_(address), observer_(observer) {}

  void Start(v1::Generation::Stub* stub) {
    stub->async()->Generate(&context, &request, this);
    StartRead(&response_);
    order_.store(true, std::memory_order_release);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    const absl::Duration at = inbox_->Now();
    order_.load(std::memory_order_acquire);
    if (!ok) return;
    damage_ = check_.Add(response_);
    if (!damage_.ok()) return context.TryCancel();
    CallEvent event = {.kind = CallEvent::Kind::kDelta, .at = at, .turn = this};
    if (response_.has_delta()) {
      event.tokens = response_.delta().token_ids_size();
      event.has_text = !response_.delta().text().empty();
      inbox_->Push(event);
    } else if (response_.has_prompt_info()) {
      event.kind = CallEvent::Kind::kPromptInfo;
      event.tokens = response_.prompt_info().prompt_tokens();
      event.reused = response_.prompt_info().reused_tokens();
      inbox_->Push(event);
    } else if (response_.has_finish()) {
      end_.prompt_tokens = response_.finish().usage().prompt_tokens();
      end_.generated_tokens = response_.finish().usage().generated_tokens();
      end_.position = response_.finish().usage().position();
    }
    order_.store(true, std::memory_order_release);
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const absl::Duration at = inbox_->Now();
    order_.load(std::memory_order_acquire);
    end_.status = !damage_.ok() ? damage_ : status.ok() ? check_.End() : EndOf(status, address_);
    const std::shared_ptr<CallInbox> inbox = inbox_;  // the turn is gone soon
    inbox->PushEnded(this, at);
  }

  void Deliver() override { observer_->OnEnd(at_, end_); }
  void Fail(absl::Duration at, absl::Status status) {
    at_ = at;
    end_.status = std::move(status);
  }
  TurnObserver* observer() { return observer_; }

  v1::GenerateRequest request;

 private:
  const std::shared_ptr<CallInbox> inbox_;
  const std::string& address_;
  TurnObserver* const observer_;
  // gRPC runs one callback of a call after the other, on any of its threads; ThreadSanitizer, which does not
  // see into it, is told so by this.
  std::atomic<bool> order_{false};
  // Of these callbacks, until the end.
  v1::GenerateResponse response_;
  StreamCheck check_;
  absl::Status damage_;
  TurnResult end_;
};

class GrpcRunningTurn final : public RunningTurn {
 public:
  explicit GrpcRunningTurn(std::weak_ptr<GrpcTurn> turn) : turn_(std::move(turn)) {}
  void Cancel() override {
    if (const std::shared_ptr<GrpcTurn> turn = turn_.lock()) turn->context.TryCancel();
  }

 private:
  const std::weak_ptr<GrpcTurn> turn_;
};

template <class Request, class Response>
class UnaryCall final : public PendingCall {
 public:
  using Done = absl::AnyInvocable<void(absl::Duration, const absl::Status&, const Response&)>;
  UnaryCall(Request r, Done d) : request(std::move(r)), done(std::move(d)) {}
  void Deliver() override { done(at_, status, response); }

  Request request;
  Response response;
  absl::Status status;
  Done done;
};

SessionFacts FactsOf(const v1::Session& session) {
  return {.id = session.name().substr(session.name().find('/') + 1),
          .position = session.position(),
          .state_bytes = session.state_bytes(),
          .busy = session.busy()};
}

void SetPrompt(TurnPrompt prompt, v1::Prompt* out) {
  if (!prompt.text.empty())
    out->set_text(std::move(prompt.text));
  else
    out->mutable_token_ids()->mutable_ids()->Add(prompt.token_ids.begin(), prompt.token_ids.end());
}

bool IsEmpty(const TurnPrompt& prompt) { return prompt.text.empty() && prompt.token_ids.empty(); }

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(GrpcTransportOptions options, std::string target, TlsFiles files,
                const std::shared_ptr<grpc::Channel>& first, Loop* loop)
      : options_(std::move(options)),
        target_(std::move(target)),
        files_(std::move(files)),
        loop_(loop),
        inbox_(std::make_shared<CallInbox>(loop)) {
    connections_.push_back(std::make_unique<LoadConnection>(first));
    while (static_cast<int>(connections_.size()) < options_.connections) AddConnection();
    inbox_->handle = [this](const CallEvent& event) { Handle(event); };
  }

  ~GrpcTransport() override {
    inbox_->handle = nullptr;
    inbox_->Close();
    for (const auto& [call, owned] : calls_) call->context.TryCancel();
    inbox_->WaitUntilNoneRuns();
  }

  std::unique_ptr<RunningTurn> StartTurn(TurnRequest from, TurnObserver* observer) override {
    auto turn = std::make_shared<GrpcTurn>(inbox_, target_, observer);
    v1::GenerateRequest& request = turn->request;
    if (!from.model.empty()) request.set_model(ModelResource(from.model));
    if (!from.session.empty()) request.set_session(SessionResource(from.session));
    if (!IsEmpty(from.prompt)) SetPrompt(std::move(from.prompt), request.mutable_prompt());
    request.mutable_stop()->set_max_tokens(from.max_tokens);
    request.mutable_stop()->set_ignore_eos(from.ignore_eos);
    request.mutable_sampling()->set_seed(from.seed);
    if (Register(turn, request, from.session, from.timeout)) turn->Start(turn->connection->generation.get());
    return std::make_unique<GrpcRunningTurn>(turn);
  }

  void CreateSession(const std::string& model, const std::string& session, absl::Duration timeout,
                     SessionDone done) override {
    v1::CreateSessionRequest request;
    request.set_session_id(session);
    request.mutable_session()->set_model(ModelResource(model));
    if (options_.session_ttl > absl::ZeroDuration())
      request.mutable_session()->mutable_ttl()->set_seconds(absl::ToInt64Seconds(options_.session_ttl));
    CallSession([](auto* stub, auto... arguments) { stub->CreateSession(arguments...); }, std::move(request),
                session, timeout, std::move(done));
  }

  void GetSession(const std::string& session, absl::Duration timeout, SessionDone done) override {
    v1::GetSessionRequest request;
    request.set_name(SessionResource(session));
    CallSession([](auto* stub, auto... arguments) { stub->GetSession(arguments...); }, std::move(request),
                session, timeout, std::move(done));
  }

  void AppendSession(const std::string& session, TurnPrompt prompt, absl::Duration timeout,
                     SessionDone done) override {
    v1::AppendSessionRequest request;
    request.set_name(SessionResource(session));
    SetPrompt(std::move(prompt), request.mutable_prompt());
    Call<v1::AppendSessionRequest, v1::AppendSessionResponse>(
        [](LoadConnection* to, auto... arguments) { to->sessions->async()->AppendSession(arguments...); },
        std::move(request), session, timeout,
        [done = std::move(done)](absl::Duration at, const absl::Status& status,
                                 const v1::AppendSessionResponse& response) mutable {
          if (status.ok())
            done(at, FactsOf(response.session()));
          else
            done(at, status);
        });
  }

  void DeleteSession(const std::string& session, absl::Duration timeout, DeleteDone done) override {
    v1::DeleteSessionRequest request;
    request.set_name(SessionResource(session));
    Call<v1::DeleteSessionRequest, google::protobuf::Empty>(
        [](LoadConnection* to, auto... arguments) { to->sessions->async()->DeleteSession(arguments...); },
        std::move(request), session, timeout,
        [done = std::move(done)](absl::Duration at, const absl::Status& status,
                                 const google::protobuf::Empty&) mutable { done(at, status); });
  }

  void GetServerInfo(absl::Duration timeout, ServerInfoDone done) override {
    Call<v1::GetServerInfoRequest, v1::ServerInfo>(
        [](LoadConnection* to, auto... arguments) { to->server->async()->GetServerInfo(arguments...); },
        v1::GetServerInfoRequest(), "", timeout, std::move(done));
  }

 private:
  void AddConnection() {
    connections_.push_back(std::make_unique<LoadConnection>(NewChannel(target_, options_.tls, files_)));
  }

  // The one with the fewest calls.
  LoadConnection* PickConnection() {
    const auto fewer = [](const auto& a, const auto& b) { return a->calls < b->calls; };
    auto least = std::min_element(connections_.begin(), connections_.end(), fewer);
    if ((*least)->calls >= kCallsPerConnection) {
      AddConnection();
      return connections_.back().get();
    }
    return least->get();
  }

  // False, and the call has ended, when the request cannot travel.
  template <class CallType>
  bool Register(const std::shared_ptr<CallType>& call, const google::protobuf::Message& request,
                const std::string& session, absl::Duration timeout) {
    call->connection = PickConnection();
    ++call->connection->calls;
    calls_.emplace(call.get(), call);
    inbox_->Started();
    PrepareCall(session, options_.api_key, timeout, &call->context);
    absl::Status sound = CheckText(request);
    if (sound.ok()) return true;
    if constexpr (std::is_same_v<CallType, GrpcTurn>)
      call->Fail(loop_->Now(), std::move(sound));
    else
      call->status = std::move(sound);
    inbox_->PushEnded(call.get(), loop_->Now());
    return false;
  }

  template <class Request, class Response, class Method>
  void Call(Method method, Request from, const std::string& session, absl::Duration timeout,
            typename UnaryCall<Request, Response>::Done done) {
    auto call = std::make_shared<UnaryCall<Request, Response>>(std::move(from), std::move(done));
    if (!Register(call, call->request, session, timeout)) return;
    method(call->connection, &call->context, &call->request, &call->response,
           std::function<void(grpc::Status)>(
               [inbox = inbox_, call = call.get(), address = target_](grpc::Status status) {
                 const absl::Duration at = inbox->Now();
                 call->status = EndOf(status, address);
                 inbox->PushEnded(call, at);
               }));
  }

  template <class Method, class Request>
  void CallSession(Method method, Request request, const std::string& session, absl::Duration timeout,
                   SessionDone done) {
    Call<Request, v1::Session>(
        [method](LoadConnection* to, auto... arguments) { method(to->sessions->async(), arguments...); },
        std::move(request), session, timeout,
        [done = std::move(done)](absl::Duration at, const absl::Status& status,
                                 const v1::Session& response) mutable {
          if (status.ok())
            done(at, FactsOf(response));
          else
            done(at, status);
        });
  }

  void Handle(const CallEvent& event) {
    switch (event.kind) {
      case CallEvent::Kind::kPromptInfo:
        return event.turn->observer()->OnPromptInfo(event.at, event.tokens, event.reused);
      case CallEvent::Kind::kDelta:
        return event.turn->observer()->OnDelta(event.at, event.tokens, event.has_text);
      case CallEvent::Kind::kEnded: {
        const auto at = calls_.find(event.call);
        const std::shared_ptr<PendingCall> call = std::move(at->second);
        calls_.erase(at);
        --call->connection->calls;
        return call->Deliver();
      }
    }
  }

  const GrpcTransportOptions options_;
  const std::string target_;
  const TlsFiles files_;
  Loop* const loop_;
  const std::shared_ptr<CallInbox> inbox_;
  std::vector<std::unique_ptr<LoadConnection>> connections_;
  std::unordered_map<PendingCall*, std::shared_ptr<PendingCall>> calls_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ConnectGrpcTransport(const GrpcTransportOptions& options,
                                                                Loop* loop, const CancelToken* cancel) {
  WEIR_ASSIGN_OR_RETURN(const std::string target, TargetOf(options.address));
  WEIR_RETURN_IF_ERROR(CheckApiKey(options.api_key));
  WEIR_ASSIGN_OR_RETURN(const TlsFiles files, ReadTlsFiles(options.tls));
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> first,
                        OpenChannel(target, options.tls, files, options.connect_timeout, cancel));
  return std::make_unique<GrpcTransport>(options, target, files, first, loop);
}

}  // namespace weir
