#include "model/tokenizer/tokenizer.h"

#include <utility>

#include "fmt/format.h"
#include "model/tokenizer/tokenizer_parts.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

// Positions of symbols are 32-bit, and a step may make a text three times as long.
constexpr size_t kMaxTextBytes = size_t{1} << 28;

// One Encode call.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, const Tokenizer::EncodeOptions& options, std::vector<int32_t>* ids)
      : parts_(parts), match_special_(options.parse_special), ids_(*ids) {
    context_.continuation = options.continuation;
    context_.cancelled = options.cancelled;
    scratch_.cancelled = options.cancelled;
    scratch_.allow_special = options.parse_special;
  }

  absl::Status Run(std::string_view text) {
    std::vector<TextPart> found;
    parts_.matcher.Split(text, match_special_, &found);
    for (const TextPart& part : found) {
      if (part.token != nullptr) {
        ids_.push_back(part.token->id);
      } else {
        WEIR_RETURN_IF_ERROR(Segment(text.substr(part.begin, part.end - part.begin), part.begin == 0));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Text between two added tokens.
  absl::Status Segment(std::string_view source, bool at_start) {
    std::string text(source);
    if (parts_.normalizer != nullptr) {
      WEIR_RETURN_IF_ERROR(parts_.normalizer->Apply(context_, &text, &at_start));
    }
    std::vector<TextPart> found;
    parts_.normalized_matcher.Split(text, match_special_, &found);
    for (const TextPart& part : found) {
      if (part.token != nullptr) {
        ids_.push_back(part.token->id);
      } else {
        WEIR_RETURN_IF_ERROR(
            Plain(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0));
      }
    }
    return absl::OkStatus();
  }

  // Normalized text without added tokens.
  absl::Status Plain(std::string text, bool at_start) {
    Words words;
    words.spans.push_back({0, text.size(), at_start});
    words.text = std::move(text);
    if (parts_.pre_tokenizer != nullptr) WEIR_RETURN_IF_ERROR(parts_.pre_tokenizer->Apply(context_, &words));
    for (const WordSpan& span : words.spans) {
      const std::string_view word = std::string_view(words.text).substr(span.begin, span.end - span.begin);
      WEIR_RETURN_IF_ERROR(parts_.bpe->Encode(word, &scratch_, &ids_));
    }
    return absl::OkStatus();
  }

  const TokenizerParts& parts_;
  const bool match_special_;
  EncodeContext context_;
  BpeScratch scratch_;
  std::vector<int32_t>& ids_;
};

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  std::string out;
  size_t done = 0;
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, done)) {
    out.append(*text, done, at - done);
    out.append(to);
    done = at + from.size();
  }
  out.append(*text, done);
  *text = std::move(out);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                               std::string_view tokenizer_config_json) {
  WEIR_ASSIGN_OR_RETURN(auto parts, TokenizerParts::FromJson(tokenizer_json, tokenizer_config_json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "text has {} bytes, the tokenizer takes at most {}; split it", text.size(), kMaxTextBytes));
  }
  if (const std::optional<size_t> bad = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(fmt::format("text is not valid UTF-8 at byte {} of {}: {}", *bad,
                                                  text.size(), Quoted(text.substr(*bad, 8))));
  }
  if (options.cancelled != nullptr && options.cancelled->load(std::memory_order_relaxed)) {
    return absl::CancelledError("tokenizing was cancelled");
  }
  std::vector<int32_t> ids;
  const PostProcessor& around = parts_->post_processor;
  if (options.add_special_tokens) ids = around.prefix;
  WEIR_RETURN_IF_ERROR(Encoder(*parts_, options, &ids).Run(text));
  if (options.add_special_tokens) ids.insert(ids.end(), around.suffix.begin(), around.suffix.end());
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool at_start = true;
  for (const int32_t id : ids) {
    if (!parts_->Has(id) || (skip_special && parts_->special[id])) continue;
    text += parts_->pieces.Get(id, at_start);
    at_start = false;
  }
  return text;
}

std::string Tokenizer::Detokenize(std::span<const int32_t> ids, bool skip_special) const {
  std::string text = Decode(ids, skip_special);
  if (parts_->clean_up) {
    // The replacements, in this order, that `clean_up_tokenization_spaces` stands for in Transformers.
    constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kReplacements) ReplaceAll(from, to, &text);
  }
  return text;
}

std::string_view Tokenizer::Piece(int32_t id, bool at_start) const {
  if (!parts_->Has(id) || parts_->special[id]) return {};
  return parts_->pieces.Get(id, at_start);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->tokens.size()); }

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  const std::optional<int32_t> added = FindToken(parts_->added_ids, token);
  return added.has_value() ? added : parts_->bpe->Find(token);
}

std::string_view Tokenizer::IdToToken(int32_t id) const {
  return parts_->Has(id) ? std::string_view(parts_->tokens[id]) : std::string_view();
}

bool Tokenizer::IsSpecial(int32_t id) const { return parts_->Has(id) && parts_->special[id]; }
std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos_id; }
bool Tokenizer::clean_up_tokenization_spaces() const { return parts_->clean_up; }
uint64_t Tokenizer::fingerprint() const { return parts_->fingerprint; }

}  // namespace weir
