#include "model/weights/output_head.h"

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

absl::StatusOr<bool> SameContents(const WeightMap& weights, const SafetensorsEntry& a,
                                  const SafetensorsEntry& b) {
  if (a.dtype_name != b.dtype_name || a.shape != b.shape) return false;
  const auto read = [&weights](const SafetensorsEntry& entry) {
    return entry.dtype == DType::kI8 ? weights.GetInt8(entry.name, entry.shape)
                                     : weights.Get(entry.name, entry.shape);
  };
  WEIR_ASSIGN_OR_RETURN(const WeightTensor left, read(a));
  WEIR_ASSIGN_OR_RETURN(const WeightTensor right, read(b));
  return std::equal(left.data.begin(), left.data.end(), right.data.begin());
}

}  // namespace

absl::StatusOr<OutputHead> ResolveOutputHead(const WeightMap& weights, bool tie,
                                             std::string_view embedding_name, std::string_view head_name) {
  const SafetensorsEntry* embedding = weights.Find(embedding_name);
  const SafetensorsEntry* head = weights.Find(head_name);
  if (!tie) {
    if (head == nullptr) {
      return absl::NotFoundError(fmt::format(
          "tensor {} is missing: tie_word_embeddings is false, so the output matrix must be in the files",
          Quoted(head_name)));
    }
    return OutputHead{std::string(head_name), false, {}};
  }
  if (embedding == nullptr) {
    return absl::NotFoundError(
        fmt::format("tensor {} (embedding and, tied, output matrix) is missing", Quoted(embedding_name)));
  }
  OutputHead result{std::string(embedding_name), true, {}};
  if (head == nullptr) return result;
  weights.MarkUsed(head_name);
  weights.MarkUsed(ScaleName(head_name));
  WEIR_ASSIGN_OR_RETURN(const bool same, SameContents(weights, *embedding, *head));
  if (!same) {
    result.warning = fmt::format(
        "tensor {} differs from {}, but tie_word_embeddings is true: {} is ignored; set it to false to use "
        "it",
        Quoted(head_name), Quoted(embedding_name), Quoted(head_name));
  }
  return result;
}

}  // namespace weir
