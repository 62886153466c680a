#include "model/tokenizer/token_decoder.h"

#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int kMaxDepth = 16;

absl::Status AcrossTokens(const std::string& where, std::string_view why) {
  return TokenizerError(where,
                        fmt::format("{}, so text could not be streamed token by token; not supported", why));
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// <0xNN> -> its byte, else -1.
int ByteToken(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Cuts up to `start` times `mark` from the front and up to `stop` times from the back.
void Strip(std::string_view mark, int start, int stop, std::string* text) {
  size_t begin = 0;
  for (int i = 0; i < start && text->compare(begin, mark.size(), mark) == 0; ++i) begin += mark.size();
  size_t end = text->size();
  for (int i = 0; i < stop && end >= begin + mark.size(); ++i) {
    if (text->compare(end - mark.size(), mark.size(), mark) != 0) break;
    end -= mark.size();
  }
  *text = text->substr(begin, end - begin);
}

void DecodeByteLevel(const DecodedToken& token, std::string* text) {
  if (token.verbatim) return;
  std::string bytes;
  for (size_t pos = 0; pos < text->size();) {
    const int byte = ByteOfCharacter(NextCodePoint(*text, &pos));
    if (byte < 0) return;  // not byte-level: as it stands
    bytes += static_cast<char>(byte);
  }
  *text = std::move(bytes);
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const Json& json) {
  TokenDecoder decoder;
  if (json.is_null()) {
    decoder.steps_.push_back({Kind::kJoinWithSpaces, "", 0, 0, false, std::nullopt});
    return decoder;
  }
  Grain grain = Grain::kTokens;
  WEIR_RETURN_IF_ERROR(decoder.Add(json, "decoder", 0, &grain));
  return decoder;
}

absl::Status TokenDecoder::Add(const Json& json, const std::string& where, int depth, Grain* grain) {
  if (depth > kMaxDepth) return TokenizerError(where, "steps are nested too deep");
  WEIR_ASSIGN_OR_RETURN(const std::string type, TypeField(json, where));
  if (type == "Sequence") {
    const Json* list = FindField(json, "decoders");
    if (list == nullptr || !list->is_array()) return TokenizerError(where, "\"decoders\" must be a list");
    for (size_t i = 0; i < list->size(); ++i) {
      WEIR_RETURN_IF_ERROR(Add((*list)[i], fmt::format("{}.decoders[{}]", where, i), depth + 1, grain));
    }
    return absl::OkStatus();
  }
  if (type == "Fuse") {
    *grain = Grain::kJoined;
    return absl::OkStatus();
  }
  if (type == "Strip") return AddStrip(json, where, *grain);
  if (type == "Replace") return AddReplace(json, where, *grain);
  if (type != "ByteLevel" && type != "ByteFallback" && type != "Metaspace") {
    return TokenizerError(where, fmt::format("kind {} is not supported", Quoted(type)));
  }
  if (*grain != Grain::kTokens)
    return AcrossTokens(where, fmt::format("{} comes after tokens are joined", type));
  Step step{Kind::kByteLevel, "", 0, 0, false, std::nullopt};
  if (type == "ByteLevel") {
    *grain = Grain::kJoined;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
    *grain = Grain::kByteRuns;
  } else {
    step.kind = Kind::kMetaspace;
    WEIR_ASSIGN_OR_RETURN(step.content, CharacterField(json, "replacement", where));
    WEIR_ASSIGN_OR_RETURN(step.cuts_first, BoolField(json, "add_prefix_space", true, where));
    if (FindField(json, "prepend_scheme") != nullptr) {
      WEIR_ASSIGN_OR_RETURN(const std::string scheme, StringField(json, "prepend_scheme", where));
      step.cuts_first = scheme != "never";
    }
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddStrip(const Json& json, const std::string& where, Grain grain) {
  Step step{grain == Grain::kJoined ? Kind::kStripJoined : Kind::kStrip, "", 0, 0, false, std::nullopt};
  WEIR_ASSIGN_OR_RETURN(step.content, CharacterField(json, "content", where));
  const Json* start = FindField(json, "start");
  const Json* stop = FindField(json, "stop");
  if (start == nullptr || stop == nullptr) return TokenizerError(where, "needs \"start\" and \"stop\"");
  WEIR_ASSIGN_OR_RETURN(step.start, IdValue(*start, where + ".start"));
  WEIR_ASSIGN_OR_RETURN(step.stop, IdValue(*stop, where + ".stop"));
  if (grain == Grain::kByteRuns) return AcrossTokens(where, "Strip stands between ByteFallback and Fuse");
  if (grain == Grain::kJoined) {
    if (step.start > 1) return AcrossTokens(where, "more than one character is cut from the joined text");
    if (step.stop > 0) return AcrossTokens(where, "the end of the joined text is cut");
    if (step.start == 0) return absl::OkStatus();
    if (cuts_joined_start_) return AcrossTokens(where, "the start of the joined text is cut twice");
    cuts_joined_start_ = true;
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddReplace(const Json& json, const std::string& where, Grain grain) {
  Step step{Kind::kReplace, "", 0, 0, false, std::nullopt};
  WEIR_ASSIGN_OR_RETURN(step.content, StringField(json, "content", where));
  WEIR_ASSIGN_OR_RETURN(step.regex, PatternField(json, where));
  if (grain != Grain::kTokens) {
    // One ASCII character cannot be cut in two by a token's border; anything else may be.
    const Json* literal = FindField(json["pattern"], "String");
    const bool safe = literal != nullptr && literal->get_ref<const std::string&>().size() == 1 &&
                      static_cast<unsigned char>(literal->get_ref<const std::string&>()[0]) < 0x80;
    if (!safe || cuts_joined_start_) return AcrossTokens(where, "Replace works on the joined text");
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenDecoder::Decode(const DecodedToken& token, bool at_start) const {
  std::string text(token.text);
  for (const Step& step : steps_) WEIR_RETURN_IF_ERROR(Apply(step, token, at_start, &text));
  return text;
}

absl::Status TokenDecoder::Apply(const Step& step, const DecodedToken& token, bool at_start,
                                 std::string* text) {
  switch (step.kind) {
    case Kind::kJoinWithSpaces:
      if (!at_start) text->insert(0, " ");
      break;
    case Kind::kByteLevel:
      DecodeByteLevel(token, text);
      break;
    case Kind::kMetaspace: {
      const std::string_view instead = at_start && step.cuts_first ? "" : " ";
      for (size_t at = text->find(step.content); at != std::string::npos;
           at = text->find(step.content, at + instead.size())) {
        text->replace(at, step.content.size(), instead);
      }
      break;
    }
    case Kind::kByteFallback:
      if (const int byte = ByteToken(*text); byte >= 0) *text = std::string(1, static_cast<char>(byte));
      break;
    case Kind::kReplace: {
      std::vector<RegexPart> parts;
      WEIR_RETURN_IF_ERROR(step.regex->Split(*text, nullptr, &parts));
      std::string replaced;
      for (const RegexPart& part : parts) {
        replaced.append(part.is_match ? step.content : text->substr(part.begin, part.end - part.begin));
      }
      *text = std::move(replaced);
      break;
    }
    case Kind::kStrip:
      Strip(step.content, step.start, step.stop, text);
      break;
    case Kind::kStripJoined:
      if (at_start) Strip(step.content, step.start, 0, text);
      break;
  }
  return absl::OkStatus();
}

}  // namespace weir
