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
//   tie, no head in the files               tied
//   tie, a head that equals the embedding   tied
//   tie, a head that differs                tied, with a warning that names the head (which is marked as
//   used) no tie, a head                          the head no tie, no head                         NOT_FOUND
//   naming the head
absl::StatusOr<OutputHead> ResolveOutputHead(const WeightMap& weights, bool tie,
                                             std::string_view embedding_name, std::string_view head_name);

}  // namespace weir
