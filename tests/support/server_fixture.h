// ServerFixture: a WeirServer in this process on a free port of 127.0.0.1, and clients for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "google/rpc/status.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/security/credentials.h"
#include "server/server.h"
#include "tests/support/fake_model.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/models.grpc.pb.h"
#include "weir/v1/server_info.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir::testing {

// A tokenizer of 258 ids: one per byte, then "<s>", which its template puts first, and "</s>".
inline constexpr int32_t kByteVocab = 258;
inline constexpr int32_t kBosId = 256;
inline constexpr int32_t kEosId = 257;
std::shared_ptr<const Tokenizer> ByteTokenizer();

// The ids of `text` under ByteTokenizer, without "<s>".
std::vector<int32_t> ByteIds(std::string_view text);

// One model as the engine and as the frontend see it.
struct ServedModel {
  EngineModel engine;
  LoadedModel loaded;
};

ServedModel MakeServedModel(LoadedModel loaded, const RunnerLimits& limits);
// A FakeModel behind ByteTokenizer; options.vocab_size is set to kByteVocab. `model` gets the instance.
ServedModel MakeServedFake(const std::string& name, FakeModelOptions options = {},
                           const RunnerLimits& limits = {}, std::shared_ptr<FakeModel>* model = nullptr);

struct FixtureOptions {
  ServerOptions server;  // `listen` is set to a free port
  EngineOptions engine;
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // of the clients; null: plaintext
  int threads = 1;
  std::shared_ptr<Device> device;  // null: the CPU with `threads`
  bool serve = true;               // false: stays in the state of loading until Serve()
};

// Shut down at the end; abandoned calls of the test do not hold that up for long.
class ServerFixture {
 public:
  explicit ServerFixture(std::vector<ServedModel> models, FixtureOptions options = {});
  // One FakeModel named "fake".
  explicit ServerFixture(FixtureOptions options = {});
  ~ServerFixture();

  void Serve();

  WeirServer& server() { return *server_; }
  Engine& engine() { return *server_->engine(); }
  std::string address() const;

  // A connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel(const grpc::ChannelArguments& arguments = {}) const;

  // Over one shared connection.
  v1::Generation::Stub& generation() { return *generation_; }
  v1::Models::Stub& models() { return *models_; }
  v1::Sessions::Stub& sessions() { return *sessions_; }
  v1::Server::Stub& info() { return *info_; }

 private:
  std::vector<ServedModel> to_serve_;
  const FixtureOptions options_;
  std::unique_ptr<WeirServer> server_;
  std::unique_ptr<v1::Generation::Stub> generation_;
  std::unique_ptr<v1::Models::Stub> models_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::unique_ptr<v1::Server::Stub> info_;
};

// A Generate call read to its end.
struct Answer {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;
  std::optional<v1::PromptInfo> info;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<v1::TokenLogprob> logprobs;
  std::optional<v1::Finish> finish;
  std::string what_is_wrong;  // with the order of messages and positions; empty when all is well
};
Answer Generate(v1::Generation::Stub& stub, const v1::GenerateRequest& request,
                grpc::ClientContext* context = nullptr);

// One message of bytes there, one back; any kind of method.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response,
                     grpc::ClientContext* context = nullptr);

// A greedy request of ids for the only model.
v1::GenerateRequest GreedyRequest(const std::vector<int32_t>& prompt, int64_t max_tokens);

// The google.rpc.Status in the trailer; empty when there is none.
google::rpc::Status RpcStatusOf(const grpc::Status& status);
// The first detail of this type.
template <class Detail>
std::optional<Detail> DetailOf(const grpc::Status& status) {
  Detail detail;
  const google::rpc::Status rpc_status = RpcStatusOf(status);
  for (const auto& any : rpc_status.details())
    if (any.UnpackTo(&detail)) return detail;
  return std::nullopt;
}
// ErrorInfo.reason, or why there is not exactly one ErrorInfo of this domain.
std::string ReasonOf(const grpc::Status& status);

// Looks at `condition` until it holds or `limit` is over.
bool WaitFor(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(20));

}  // namespace weir::testing
