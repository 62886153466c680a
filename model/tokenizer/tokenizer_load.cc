// Reading a tokenizer folder into TokenizerParts.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "model/config/input_file.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr uint64_t kMaxFileBytes = 512ull << 20;
// Goes up when the same file would encode or decode differently than before.
constexpr std::string_view kFingerprintVersion = "weir tokenizer 1\n";

absl::StatusOr<Json> ParseObject(std::string_view text, std::string_view name) {
  try {
    Json json = Json::parse(text.begin(), text.end());
    if (json.is_object()) return json;
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(fmt::format("{} is not valid JSON: {}", name, e.what()));
  }
  return absl::InvalidArgumentError(fmt::format("{} must hold a JSON object", name));
}

const Json& FieldOrNull(const Json& object, const char* key) {
  static const Json* const kNull = new Json;
  const Json* field = FindField(object, key);
  return field == nullptr ? *kNull : *field;
}

// FNV-1a, 64 bits.
uint64_t Hash(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const unsigned char c : bytes) hash = (hash ^ c) * 0x100000001B3;
  return hash;
}

uint64_t Fingerprint(const Json& json, const TokenizerParts& parts) {
  std::string identity(kFingerprintVersion);
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder"}) {
    // Keys are sorted in a Json, so that layout and order in the file do not count.
    identity += FieldOrNull(json, key).dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  }
  parts.bpe->AppendIdentity(&identity);
  for (const AddedToken& token : parts.added) {
    identity += fmt::format("{}:{}:{} {:d}{:d}{:d}{:d}{:d}\n", token.id, token.content.size(), token.content,
                            token.special, token.single_word, token.lstrip, token.rstrip, token.normalized);
  }
  for (const int32_t id : parts.post_processor.prefix) identity += fmt::format("<{}", id);
  for (const int32_t id : parts.post_processor.suffix) identity += fmt::format(">{}", id);
  identity += parts.clean_up ? "\nclean up" : "\n";
  return Hash(identity);
}

// Fills tokens, known, special and added_ids.
absl::Status NumberTokens(TokenizerParts* parts) {
  int32_t size = 0;
  for (const auto& [token, id] : parts->bpe->vocabulary()) size = std::max(size, id + 1);
  for (const AddedToken& token : parts->added) size = std::max(size, token.id + 1);
  parts->tokens.resize(size);
  parts->known.resize(size);
  parts->special.resize(size);
  for (const auto& [token, id] : parts->bpe->vocabulary()) {
    parts->tokens[id] = token;
    parts->known[id] = true;
  }
  for (const AddedToken& token : parts->added) {
    const std::optional<int32_t> in_model = parts->bpe->Find(token.content);
    if (in_model.has_value() && *in_model != token.id) {
      return TokenizerError("added_tokens", fmt::format("{} has id {} here and id {} in model.vocab",
                                                        Quoted(token.content), token.id, *in_model));
    }
    if (!in_model.has_value() && parts->known[token.id]) {
      return TokenizerError("added_tokens",
                            fmt::format("{} has id {}, which is {} in model.vocab", Quoted(token.content),
                                        token.id, Quoted(parts->tokens[token.id])));
    }
    parts->tokens[token.id] = token.content;
    parts->known[token.id] = true;
    parts->special[token.id] = token.special;
    parts->added_ids[token.content] = token.id;
  }
  return absl::OkStatus();
}

// Fills the matchers; `spellings` gets the normalized text of the tokens that are looked for in normalized
// text.
absl::Status AddMatchers(TokenizerParts* parts, absl::flat_hash_map<int32_t, std::string>* spellings) {
  for (const AddedToken& token : parts->added) {
    if (!token.normalized) {
      parts->matcher.Add(token.content, &token);
      continue;
    }
    std::string spelling = token.content;
    bool at_start = true;
    if (parts->normalizer != nullptr) {
      WEIR_RETURN_IF_ERROR(parts->normalizer->Apply(EncodeContext(), &spelling, &at_start));
    }
    if (!spelling.empty()) parts->normalized_matcher.Add(spelling, &token);
    (*spellings)[token.id] = std::move(spelling);
  }
  return absl::OkStatus();
}

absl::Status FillPieces(const TokenDecoder& decoder,
                        const absl::flat_hash_map<int32_t, std::string>& spellings, TokenizerParts* parts) {
  PieceTable& table = parts->pieces;
  table.inside.resize(parts->tokens.size());
  table.first.resize(parts->tokens.size());
  const auto add = [&table](const std::string& bytes) {
    const PieceTable::Range range{static_cast<uint32_t>(table.bytes.size()),
                                  static_cast<uint32_t>(bytes.size())};
    table.bytes += bytes;
    return range;
  };
  for (size_t id = 0; id < parts->tokens.size(); ++id) {
    if (!parts->known[id]) continue;
    DecodedToken token{parts->tokens[id], false};
    if (parts->added_ids.contains(parts->tokens[id])) {
      // The reference decodes an added token from the text that it is found by.
      const auto spelling = spellings.find(static_cast<int32_t>(id));
      if (spelling != spellings.end()) token.text = spelling->second;
      token.verbatim = !parts->bpe->Find(parts->tokens[id]).has_value();
    }
    WEIR_ASSIGN_OR_RETURN(const std::string inside, decoder.Decode(token, false));
    WEIR_ASSIGN_OR_RETURN(const std::string first, decoder.Decode(token, true));
    if (decoder.cuts_joined_start() && inside.empty() && !parts->special[id]) {
      return TokenizerError("decoder",
                            fmt::format("token {} decodes to nothing, so that the start of the text may "
                                        "be in a later token; not supported with Strip",
                                        id));
    }
    table.inside[id] = add(inside);
    table.first[id] = first == inside ? table.inside[id] : add(first);
    if (table.bytes.size() > UINT32_MAX / 2) return TokenizerError("model.vocab", "tokens are too long");
  }
  return absl::OkStatus();
}

// A token that tokenizer_config.json names, as text or as an object with "content".
absl::StatusOr<std::optional<int32_t>> ConfiguredToken(const Json& config, const char* key,
                                                       const TokenizerParts& parts) {
  const Json* field = FindField(config, key);
  if (field == nullptr) return std::nullopt;
  const Json* content = field->is_object() ? FindField(*field, "content") : field;
  if (content == nullptr || !content->is_string()) {
    return absl::InvalidArgumentError(
        fmt::format("tokenizer_config.json: {} must be a string or hold \"content\"", key));
  }
  const std::string token = content->get<std::string>();
  std::optional<int32_t> id = FindToken(parts.added_ids, token);
  if (!id.has_value()) id = parts.bpe->Find(token);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(fmt::format(
        "tokenizer_config.json: {} is {}, which tokenizer.json does not have; add it there or leave it out",
        key, Quoted(token)));
  }
  return id;
}

absl::Status ReadConfig(std::string_view text, TokenizerParts* parts) {
  if (text.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const Json config, ParseObject(text, "tokenizer_config.json"));
  const Json* clean_up = FindField(config, "clean_up_tokenization_spaces");
  parts->clean_up = clean_up != nullptr && clean_up->is_boolean() && clean_up->get<bool>();
  WEIR_ASSIGN_OR_RETURN(parts->bos_id, ConfiguredToken(config, "bos_token", *parts));
  WEIR_ASSIGN_OR_RETURN(parts->eos_id, ConfiguredToken(config, "eos_token", *parts));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const TokenizerParts>> TokenizerParts::FromJson(
    std::string_view tokenizer_json, std::string_view config_json) {
  WEIR_ASSIGN_OR_RETURN(const Json json, ParseObject(tokenizer_json, "tokenizer.json"));
  auto parts = std::make_unique<TokenizerParts>();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Bpe> bpe, Bpe::FromJson(FieldOrNull(json, "model")));
  WEIR_ASSIGN_OR_RETURN(parts->added, AddedTokensFromJson(FieldOrNull(json, "added_tokens")));
  std::vector<int32_t> special_ids;
  for (const AddedToken& token : parts->added) {
    if (token.special) special_ids.push_back(token.id);
  }
  bpe->SetSpecial(special_ids);
  parts->bpe = std::move(bpe);
  WEIR_ASSIGN_OR_RETURN(parts->normalizer, Normalizer::FromJson(FieldOrNull(json, "normalizer")));
  WEIR_ASSIGN_OR_RETURN(parts->pre_tokenizer, PreTokenizer::FromJson(FieldOrNull(json, "pre_tokenizer")));
  WEIR_ASSIGN_OR_RETURN(const TokenDecoder decoder, TokenDecoder::FromJson(FieldOrNull(json, "decoder")));
  WEIR_ASSIGN_OR_RETURN(parts->post_processor, PostProcessor::FromJson(FieldOrNull(json, "post_processor")));
  WEIR_RETURN_IF_ERROR(NumberTokens(parts.get()));
  for (const std::vector<int32_t>* ids : {&parts->post_processor.prefix, &parts->post_processor.suffix}) {
    for (const int32_t id : *ids) {
      if (!parts->Has(id)) return TokenizerError("post_processor", fmt::format("id {} has no token", id));
    }
  }
  absl::flat_hash_map<int32_t, std::string> spellings;
  WEIR_RETURN_IF_ERROR(AddMatchers(parts.get(), &spellings));
  WEIR_RETURN_IF_ERROR(FillPieces(decoder, spellings, parts.get()));
  WEIR_RETURN_IF_ERROR(ReadConfig(config_json, parts.get()));
  parts->fingerprint = Fingerprint(json, *parts);
  return parts;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& folder) {
  WEIR_ASSIGN_OR_RETURN(const std::string tokenizer_json,
                        ReadTextFile(folder + "/tokenizer.json", kMaxFileBytes));
  absl::StatusOr<std::string> config = ReadTextFile(folder + "/tokenizer_config.json", kMaxFileBytes);
  if (absl::IsNotFound(config.status())) config = std::string();
  WEIR_RETURN_IF_ERROR(config.status());
  return FromJson(tokenizer_json, *config);
}

}  // namespace weir
