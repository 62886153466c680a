#include "model/tokenizer/post_processor.h"

#include <string>

#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int kMaxDepth = 16;

absl::StatusOr<std::vector<int32_t>> SpecialTokenIds(const Json& template_json, const Json& piece,
                                                     const std::string& where) {
  WEIR_ASSIGN_OR_RETURN(const std::string name, StringField(piece, "id", where));
  const Json* tokens = FindField(template_json, "special_tokens");
  const Json* token = tokens == nullptr ? nullptr : FindField(*tokens, name.c_str());
  const Json* list = token == nullptr ? nullptr : FindField(*token, "ids");
  if (list == nullptr || !list->is_array()) {
    return TokenizerError(where, fmt::format("\"special_tokens\" has no ids for {}", Quoted(name)));
  }
  std::vector<int32_t> ids;
  for (const Json& value : *list) {
    WEIR_ASSIGN_OR_RETURN(const int32_t id, IdValue(value, where + ".ids"));
    ids.push_back(id);
  }
  return ids;
}

absl::Status AddTemplate(const Json& json, const std::string& where, PostProcessor* out) {
  const Json* single = FindField(json, "single");
  if (single == nullptr || !single->is_array()) return TokenizerError(where, "\"single\" must be a list");
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  int sequences = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    const std::string at = fmt::format("{}.single[{}]", where, i);
    const Json& piece = (*single)[i];
    if (const Json* sequence = FindField(piece, "Sequence")) {
      const Json* id = FindField(*sequence, "id");
      if (id == nullptr || *id != "A") {
        return TokenizerError(at, "only sequence \"A\" can stand in a template for one text");
      }
      ++sequences;
    } else if (const Json* special = FindField(piece, "SpecialToken")) {
      WEIR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, SpecialTokenIds(json, *special, at));
      std::vector<int32_t>& target = sequences == 0 ? prefix : suffix;
      target.insert(target.end(), ids.begin(), ids.end());
    } else {
      return TokenizerError(at, "must hold \"Sequence\" or \"SpecialToken\"");
    }
  }
  if (sequences != 1) return TokenizerError(where, "\"single\" must hold the text exactly once");
  // A later processor wraps what the earlier ones made.
  out->prefix.insert(out->prefix.begin(), prefix.begin(), prefix.end());
  out->suffix.insert(out->suffix.end(), suffix.begin(), suffix.end());
  return absl::OkStatus();
}

absl::Status Add(const Json& json, const std::string& where, int depth, PostProcessor* out) {
  if (depth > kMaxDepth) return TokenizerError(where, "steps are nested too deep");
  WEIR_ASSIGN_OR_RETURN(const std::string type, TypeField(json, where));
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return AddTemplate(json, where, out);
  if (type != "Sequence") return TokenizerError(where, fmt::format("kind {} is not supported", Quoted(type)));
  const Json* list = FindField(json, "processors");
  if (list == nullptr || !list->is_array()) return TokenizerError(where, "\"processors\" must be a list");
  for (size_t i = 0; i < list->size(); ++i) {
    WEIR_RETURN_IF_ERROR(Add((*list)[i], fmt::format("{}.processors[{}]", where, i), depth + 1, out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const Json& json) {
  PostProcessor processor;
  if (!json.is_null()) WEIR_RETURN_IF_ERROR(Add(json, "post_processor", 0, &processor));
  return processor;
}

}  // namespace weir
