// DecodeGraphs: decode steps recorded once per batch size and replayed. A step of a small model is a hundred
// short kernels, and giving them to a GPU one by one takes longer than running them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/function_ref.h"
#include "runtime/device/device.h"

namespace weir {

// The batch sizes that are recorded for steps of up to `max_seqs`: 1, 2, 4, … 64, then the multiples of 64,
// and max_seqs. A step is padded to the next one.
std::vector<int> DecodeBatchSizes(int max_seqs);

// Engine thread only.
class DecodeGraphs {
 public:
  // Records every size. `prepare` fills the batch for a decode step of that size; `run` gives the stream its
  // work, on the same memory each time. run is called twice, as the first run of a kernel loads it, which
  // cannot be recorded. An error is of that first run; that recording fails is failure().
  //
  // At start rather than when a size first comes: no step then takes longer because it is the first of its
  // size, and what the recordings hold of the device's memory is held before the first session.
  static absl::StatusOr<DecodeGraphs> Record(int max_seqs, Stream& stream,
                                             FunctionRef<void(int size)> prepare, FunctionRef<void()> run);

  // Why nothing is recorded, or OK.
  const absl::Status& failure() const { return failure_; }
  // The smallest recorded size that holds `num_seqs`; 0: none.
  int SizeFor(int num_seqs) const;
  // `size` is one that SizeFor gave, and the batch is prepared for it.
  void Replay(int size, Stream& stream) const;

 private:
  struct Recorded {
    int size;
    std::unique_ptr<StepGraph> graph;
  };
  const Recorded* Find(int num_seqs) const;

  std::vector<Recorded> graphs_;  // by size
  absl::Status failure_;
};

}  // namespace weir
