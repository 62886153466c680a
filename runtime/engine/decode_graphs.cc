#include "runtime/engine/decode_graphs.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace weir {

std::vector<int> DecodeBatchSizes(int max_seqs) {
  std::vector<int> sizes;
  for (int size = 1; size < max_seqs; size = size < 64 ? 2 * size : size + 64) sizes.push_back(size);
  if (max_seqs > 0) sizes.push_back(max_seqs);
  return sizes;
}

absl::StatusOr<DecodeGraphs> DecodeGraphs::Record(int max_seqs, Stream& stream,
                                                  FunctionRef<void(int)> prepare, FunctionRef<void()> run) {
  DecodeGraphs graphs;
  for (const int size : DecodeBatchSizes(max_seqs)) {
    prepare(size);
    run();
    WEIR_RETURN_IF_ERROR(stream.Synchronize());
    absl::StatusOr<std::unique_ptr<StepGraph>> graph = absl::UnknownError("");
    if (absl::Status begun = stream.BeginCapture(); begun.ok()) {
      run();
      graph = stream.EndCapture();
    } else {
      graph = std::move(begun);
    }
    if (!graph.ok()) {
      graphs.failure_ = graph.status();
      graphs.graphs_.clear();
      break;
    }
    graphs.graphs_.push_back({size, *std::move(graph)});
  }
  return graphs;
}

const DecodeGraphs::Recorded* DecodeGraphs::Find(int num_seqs) const {
  const auto it = std::lower_bound(graphs_.begin(), graphs_.end(), num_seqs,
                                   [](const Recorded& recorded, int n) { return recorded.size < n; });
  return it == graphs_.end() ? nullptr : &*it;
}

int DecodeGraphs::SizeFor(int num_seqs) const {
  const Recorded* recorded = Find(num_seqs);
  return recorded == nullptr ? 0 : recorded->size;
}

void DecodeGraphs::Replay(int size, Stream& stream) const {
  const Recorded* recorded = Find(size);
  WEIR_CHECK(recorded != nullptr && recorded->size == size);
  stream.Replay(*recorded->graph);
}

}  // namespace weir
