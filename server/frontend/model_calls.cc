#include "server/frontend/model_calls.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/text_stream.h"
#include "runtime/state/state_arena.h"
#include "server/frontend/names.h"
#include "server/frontend/session_calls.h"
#include "server/frontend/validate.h"

namespace weir {
namespace {

constexpr int kIdsBetweenLooks = 4096;  // at the cancel flag

absl::Status ReplyTooLarge(std::string_view field, int64_t limit) {
  return InvalidField(field,
                      fmt::format("makes a reply of more than {} bytes, which stock clients refuse; send "
                                  "it in parts",
                                  limit));
}

absl::Status NoTokenizer(const LoadedModel& model) {
  return InvalidField("model", fmt::format("{} has no tokenizer", ModelName(model.name)));
}

// The pieces of `ids` in order, as a stream of that text would have them.
class PieceReader {
 public:
  explicit PieceReader(const TokenText& text) : text_(text) {}
  std::string_view Next(int32_t id) {
    const std::string_view piece = text_.Piece(id, at_start_);
    at_start_ = at_start_ && text_.IsSpecial(id);
    return piece;
  }

 private:
  const TokenText& text_;
  bool at_start_ = true;
};

}  // namespace

v1::Model ModelToProto(const LoadedModel& model) {
  v1::Model out;
  out.set_name(ModelName(model.name));
  out.set_architecture(model.architecture);
  out.set_mixer(model.mixer);
  out.set_parameter_count(model.parameter_count);
  out.set_weight_bytes(model.weight_bytes);
  const std::string_view dtype = DTypeName(model.weight_dtype);
  out.set_weight_dtype(dtype.data(), dtype.size());
  // Embeddings may have more rows than the tokenizer has ids, which are all that a prompt may have.
  out.set_vocab_size(std::min(model.decoder->vocab_size(), model.text->size()));
  out.set_has_tokenizer(model.tokenizer != nullptr);
  out.set_context_limit(model.decoder->context_limit());
  v1::StateCost* state = out.mutable_state();
  state->set_fixed_bytes(StateArena::SlotBytes(model.decoder->States()));
  const PagedSpec paged = model.decoder->Paged();
  state->set_kind(paged.num_layers > 0 ? v1::StateCost::KIND_PAGED : v1::StateCost::KIND_FIXED);
  if (paged.num_layers > 0) {
    state->set_block_bytes(paged.block_bytes(kKvBlockTokens));
    state->set_block_tokens(kKvBlockTokens);
  }
  out.mutable_eos_token_ids()->Assign(model.eos_ids.begin(), model.eos_ids.end());
  return out;
}

absl::StatusOr<v1::Model> GetModel(const Frontend& frontend, const v1::GetModelRequest& request) {
  if (request.name().empty()) return InvalidField("name", "is empty");
  WEIR_ASSIGN_OR_RETURN(const int index, frontend.ResolveModel(request.name(), "name"));
  return ModelToProto(frontend.models()[index]);
}

absl::StatusOr<v1::ListModelsResponse> ListModels(const Frontend& frontend,
                                                  const v1::ListModelsRequest& request) {
  FieldViolations violations;
  const int page_size = PageSize(request.page_size(), &violations);
  if (!request.page_token().empty() && !IsValidId(request.page_token()))
    violations.Add("page_token", "is not one that this server gave out");
  WEIR_RETURN_IF_ERROR(violations.ToStatus());
  std::vector<const LoadedModel*> models;
  for (const LoadedModel& model : frontend.models())
    if (model.name > request.page_token()) models.push_back(&model);
  std::sort(models.begin(), models.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  v1::ListModelsResponse response;
  const size_t shown = std::min(models.size(), static_cast<size_t>(page_size));
  for (size_t i = 0; i < shown; ++i) *response.add_models() = ModelToProto(*models[i]);
  if (models.size() > shown) response.set_next_page_token(models[shown - 1]->name);
  return response;
}

absl::StatusOr<v1::TokenizeResponse> Tokenize(const Frontend& frontend, const v1::TokenizeRequest& request,
                                              const CallInfo& call, const std::atomic<bool>& cancelled) {
  WEIR_RETURN_IF_ERROR(CheckAlive(cancelled.load(), call.deadline, "before the text was tokenized"));
  WEIR_ASSIGN_OR_RETURN(const int index, frontend.ResolveModel(request.model(), "model"));
  const LoadedModel& model = frontend.models()[index];
  if (!model.tokenizer) return NoTokenizer(model);
  if (static_cast<int64_t>(request.text().size()) > frontend.options().max_text_bytes)
    return InvalidField("text", fmt::format("has {} bytes; this server takes at most {} at once",
                                            request.text().size(), frontend.options().max_text_bytes));
  Tokenizer::EncodeOptions options;
  options.add_special_tokens = !request.has_add_special_tokens() || request.add_special_tokens();
  options.parse_special = request.parse_special();
  options.cancelled = &cancelled;
  absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode(request.text(), options);
  WEIR_RETURN_IF_ERROR(CheckAlive(cancelled.load(), call.deadline, "while the text was tokenized"));
  if (ids.status().code() == absl::StatusCode::kInvalidArgument)
    return InvalidField("text", std::string(ids.status().message()));
  WEIR_RETURN_IF_ERROR(ids.status());

  v1::TokenizeResponse response;
  PieceReader pieces(*model.text);
  int64_t bytes = 0;
  for (const int32_t id : *ids) {
    const std::string_view piece = pieces.Next(id);
    // Tag and length of the piece, and a varint for the id.
    bytes += 5 + 5 + static_cast<int64_t>(piece.size());
    if (bytes > frontend.options().max_reply_bytes)
      return ReplyTooLarge("text", frontend.options().max_reply_bytes);
    response.add_pieces(piece.data(), piece.size());
  }
  response.mutable_token_ids()->Assign(ids->begin(), ids->end());
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> Detokenize(const Frontend& frontend,
                                                  const v1::DetokenizeRequest& request, const CallInfo& call,
                                                  const std::atomic<bool>& cancelled) {
  WEIR_ASSIGN_OR_RETURN(const int index, frontend.ResolveModel(request.model(), "model"));
  const LoadedModel& model = frontend.models()[index];
  if (!model.tokenizer) return NoTokenizer(model);
  v1::DetokenizeResponse response;
  PieceReader pieces(*model.text);
  Utf8Stream utf8;
  std::string* raw = response.mutable_raw();
  std::string* text = response.mutable_text();
  for (int i = 0; i < request.token_ids_size(); ++i) {
    if (i % kIdsBetweenLooks == 0)
      WEIR_RETURN_IF_ERROR(CheckAlive(cancelled.load(), call.deadline, "before the text was complete"));
    const int32_t id = request.token_ids(i);
    if (id < 0 || id >= model.text->size())
      return InvalidField(fmt::format("token_ids[{}]", i),
                          fmt::format("{} is outside the vocabulary of {} ids", id, model.text->size()));
    const std::string_view piece = pieces.Next(id);
    raw->append(piece);
    utf8.Append(piece, text);
    if (static_cast<int64_t>(raw->size() + text->size()) > frontend.options().max_reply_bytes)
      return ReplyTooLarge("token_ids", frontend.options().max_reply_bytes);
  }
  if (!utf8.tail().empty()) text->append("\xEF\xBF\xBD");  // U+FFFD for the character that was cut
  return response;
}

void ScoreReader::Add(const StreamChunk& chunk) {
  logprobs_.insert(logprobs_.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  ranks_.insert(ranks_.end(), chunk.ranks.begin(), chunk.ranks.end());
}

v1::ScoreResponse ScoreReader::Finish() const {
  v1::ScoreResponse response;
  response.mutable_token_ids()->Assign(turn_->prompt.begin(), turn_->prompt.end());
  response.mutable_logprobs()->Assign(logprobs_.begin(), logprobs_.end());
  response.mutable_ranks()->Assign(ranks_.begin(), ranks_.end());
  double total = 0;
  for (const float logprob : logprobs_) total += logprob;
  response.set_total_logprob(total);
  if (logprobs_.empty()) return response;
  response.set_perplexity(std::exp(-total / static_cast<double>(logprobs_.size())));
  PieceReader pieces(*turn_->model->text);
  size_t bytes = 0;
  for (size_t i = 0; i < turn_->prompt.size(); ++i) {
    const size_t size = pieces.Next(turn_->prompt[i]).size();
    if (i > 0) bytes += size;  // the first token is context only
  }
  if (bytes > 0) response.set_bits_per_byte(-total / std::log(2.0) / static_cast<double>(bytes));
  return response;
}

}  // namespace weir
