// Which matrix turns the last hidden state into logits: the checkpoint's own head, or the embedding once
// more.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/weights/weight_map.h"

namespace weir {

struct OutputHead {
  std::string tensor_name;  // the matrix to use, [vocab_size, d_model]
  bool tied = false;        // it is the embedding
  std::string warning;      // not empty: to be logged once, at load
};

// `tie` is config.json's tie_word_embeddings or the family's default. The configuration decides:
// - tie: the embedding. A head in the files is marked as used; where it differs from the embedding there is a
//   warning that names it.
// - no tie: the head; NOT_FOUND, naming it, where the files have none.
absl::StatusOr<OutputHead> ResolveOutputHead(const WeightMap& weights, bool tie,
                                             std::string_view embedding_name, std::string_view head_name);

}  // namespace weir
