#include "tests/support/server_fixture.h"

#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "nlohmann/json.hpp"
#include "runtime/base/check.h"

namespace weir::testing {
namespace {

// GPT-2's printable stand-in for a byte, as UTF-8.
std::string StandIn(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::string ByteTokenizerJson() {
  using nlohmann::json;
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[StandIn(byte)] = byte;
  const auto special = [](int id, const char* text) {
    return json{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const auto sequence = [](const char* id) { return json{{"Sequence", {{"id", id}, {"type_id", 0}}}}; };
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", json::array({special(kBosId, "<s>"), special(kEosId, "</s>")})},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", json::array({bos, sequence("A")})},
        {"pair", json::array({bos, sequence("A"), sequence("B")})},
        {"special_tokens",
         {{"<s>", {{"id", "<s>"}, {"ids", json::array({kBosId})}, {"tokens", json::array({"<s>"})}}}}}}},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", json::array()}}}}
      .dump();
}

class TokenizerText final : public TokenText {
 public:
  explicit TokenizerText(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::string_view Piece(int32_t id, bool at_start) const override { return tokenizer_->Piece(id, at_start); }
  bool IsSpecial(int32_t id) const override { return tokenizer_->IsSpecial(id); }
  int32_t size() const override { return tokenizer_->vocab_size(); }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

std::shared_ptr<const Tokenizer> ByteTokenizer() {
  static const auto* const kTokenizer = [] {
    auto tokenizer = Tokenizer::FromJson(ByteTokenizerJson());
    WEIR_CHECK(tokenizer.ok() && (*tokenizer)->vocab_size() == kByteVocab);
    return new std::shared_ptr<const Tokenizer>(*std::move(tokenizer));
  }();
  return *kTokenizer;
}

std::vector<int32_t> ByteIds(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

ServedModel MakeServedModel(LoadedModel loaded, const RunnerLimits& limits) {
  ServedModel served;
  served.engine = EngineModelOf(loaded, limits);
  served.loaded = std::move(loaded);
  return served;
}

ServedModel MakeServedFake(const std::string& name, FakeModelOptions options, const RunnerLimits& limits,
                           std::shared_ptr<FakeModel>* model) {
  options.vocab_size = kByteVocab;
  auto fake = std::make_shared<FakeModel>(options);
  LoadedModel loaded;
  loaded.name = name;
  loaded.architecture = "FakeForCausalLM";
  loaded.mixer = "fake";
  loaded.decoder = fake;
  loaded.tokenizer = ByteTokenizer();
  loaded.text = std::make_shared<TokenizerText>(loaded.tokenizer);
  loaded.parameter_count = 2;
  loaded.weight_bytes = 8;
  loaded.weights_fingerprint = 1;
  if (options.eos_id >= 0) loaded.eos_ids = {options.eos_id};
  if (model) *model = fake;
  return MakeServedModel(std::move(loaded), limits);
}

ServerFixture::ServerFixture(std::vector<ServedModel> models, FixtureOptions options)
    : to_serve_(std::move(models)), options_(std::move(options)) {
  ServerOptions server_options = options_.server;
  server_options.listen = "127.0.0.1:0";
  server_options.frontend.compute_threads = options_.threads;
  auto server = WeirServer::Start(server_options);
  WEIR_CHECK(server.ok());
  server_ = *std::move(server);
  if (options_.serve) Serve();
  const std::shared_ptr<grpc::Channel> channel = NewChannel();
  generation_ = v1::Generation::NewStub(channel);
  models_ = v1::Models::NewStub(channel);
  sessions_ = v1::Sessions::NewStub(channel);
  info_ = v1::Server::NewStub(channel);
}

ServerFixture::ServerFixture(FixtureOptions options)
    : ServerFixture(
          [] {
            std::vector<ServedModel> models;
            models.push_back(MakeServedFake("fake"));
            return models;
          }(),
          std::move(options)) {}

ServerFixture::~ServerFixture() { server_->Shutdown(absl::Now() + absl::Milliseconds(200)); }

void ServerFixture::Serve() {
  std::vector<EngineModel> engine_models;
  std::vector<LoadedModel> loaded;
  for (ServedModel& model : to_serve_) {
    engine_models.push_back(std::move(model.engine));
    loaded.push_back(std::move(model.loaded));
  }
  to_serve_.clear();
  EngineOptions engine_options = options_.engine;
  if (!engine_options.quota_of) engine_options.quota_of = server_->quota_of();
  std::shared_ptr<Device> device = options_.device;
  if (device == nullptr) device = CreateCpuDevice(options_.threads);
  auto engine = Engine::Create(std::move(device), std::move(engine_models), engine_options);
  WEIR_CHECK(engine.ok());
  server_->Serve(*std::move(engine), std::move(loaded));
}

std::string ServerFixture::address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

std::shared_ptr<grpc::Channel> ServerFixture::NewChannel(const grpc::ChannelArguments& arguments) const {
  grpc::ChannelArguments own = arguments;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto& credentials = options_.credentials;
  return grpc::CreateCustomChannel(address(), credentials ? credentials : grpc::InsecureChannelCredentials(),
                                   own);
}

Answer Generate(v1::Generation::Stub& stub, const v1::GenerateRequest& request,
                grpc::ClientContext* context) {
  grpc::ClientContext own;
  Answer answer;
  auto reader = stub.Generate(context ? context : &own, request);
  v1::GenerateResponse message;
  int64_t next_position = -1;
  const auto wrong = [&](const std::string& what) {
    if (answer.what_is_wrong.empty()) answer.what_is_wrong = what;
  };
  while (reader->Read(&message)) {
    answer.messages.push_back(message);
    if (answer.finish) wrong("a message after finish");
    if (message.has_prompt_info()) {
      if (answer.messages.size() > 1) wrong("prompt_info is not the first message");
      answer.info = message.prompt_info();
      next_position = answer.info->reused_tokens() + answer.info->prompt_tokens();
    } else if (message.has_delta()) {
      const v1::Delta& delta = message.delta();
      if (!answer.info) wrong("a delta before prompt_info");
      if (delta.position() != next_position)
        wrong(fmt::format("a delta at {}, expected at {}", delta.position(), next_position));
      next_position += delta.token_ids_size();
      answer.text += delta.text();
      answer.token_ids.insert(answer.token_ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      answer.logprobs.insert(answer.logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
    } else if (message.has_finish()) {
      answer.finish = message.finish();
      if (message.finish().usage().position() != next_position)
        wrong("usage.position differs from the deltas");
    } else {
      wrong("a message without an event");
    }
  }
  answer.status = reader->Finish();
  if (answer.status.ok() && !answer.finish) wrong("no finish");
  return answer;
}

grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response, grpc::ClientContext* context) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext own;
  const auto step = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(context ? context : &own, method, &queue);
  call->StartCall(nullptr);
  bool alive = step();
  const grpc::Slice slice(request);
  if (alive) call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  alive = alive && step();
  grpc::ByteBuffer buffer;
  if (alive) call->Read(&buffer, nullptr);
  if (alive && step()) {
    std::vector<grpc::Slice> slices;
    buffer.Dump(&slices);
    for (const grpc::Slice& s : slices) response->append(reinterpret_cast<const char*>(s.begin()), s.size());
    call->WritesDone(nullptr);
    step();
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  return status;
}

v1::GenerateRequest GreedyRequest(const std::vector<int32_t>& prompt, int64_t max_tokens) {
  v1::GenerateRequest request;
  request.mutable_prompt()->mutable_token_ids()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

google::rpc::Status RpcStatusOf(const grpc::Status& status) {
  google::rpc::Status rpc;
  rpc.ParseFromString(status.error_details());
  return rpc;
}

std::string ReasonOf(const grpc::Status& status) {
  int count = 0;
  google::rpc::ErrorInfo info;
  const google::rpc::Status rpc_status = RpcStatusOf(status);
  for (const auto& any : rpc_status.details()) count += any.UnpackTo(&info) ? 1 : 0;
  if (count != 1) return fmt::format("{} ErrorInfos", count);
  if (info.domain() != "weir.v1") return "domain " + info.domain();
  return info.reason();
}

bool WaitFor(const std::function<bool()>& condition, absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace weir::testing
