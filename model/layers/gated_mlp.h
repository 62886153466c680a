// The feed-forward layer: down(silu(gate(x)) · up(x))  (Shazeer 2020).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/layers/weight_loader.h"
#include "runtime/device/workspace.h"

namespace weir {

// Immutable after load.
class GatedMlp {
 public:
  // Reads {prefix}gate_proj, up_proj and down_proj.
  static absl::StatusOr<GatedMlp> Load(const WeightLoader& loader, const std::string& prefix, int64_t d_model,
                                       int64_t d_ff);

  int64_t parameter_count() const { return gate_up_.n() * gate_up_.k() + down_.n() * down_.k(); }
  int64_t weight_bytes() const { return gate_up_.bytes() + down_.bytes(); }
  int64_t WorkspaceBytes(int max_tokens) const {
    return Workspace::BytesFor(DType::kF32, max_tokens * gate_up_.n());
  }
  // x: f32 [num_tokens, d_model]; the output is added to `residual`, same shape.
  void Forward(const TensorView& x, const TensorView& residual, Workspace& workspace, Stream& stream) const;

 private:
  PackedMatrix gate_up_;  // [2 * d_ff, d_model]
  PackedMatrix down_;     // [d_model, d_ff]
};

}  // namespace weir
