#include "model/layers/gated_mlp.h"

#include "runtime/base/status_macros.h"
#include "runtime/ops/swiglu/swiglu.h"

namespace weir {

absl::StatusOr<GatedMlp> GatedMlp::Load(const WeightLoader& loader, const std::string& prefix,
                                        int64_t d_model, int64_t d_ff) {
  WEIR_RETURN_IF_ERROR(loader.Require(kMatmul, kSwiGlu));
  GatedMlp mlp;
  const MatrixPart parts[] = {{prefix + "gate_proj.weight", d_ff}, {prefix + "up_proj.weight", d_ff}};
  WEIR_ASSIGN_OR_RETURN(mlp.gate_up_, loader.Matrix(parts, d_model));
  WEIR_ASSIGN_OR_RETURN(mlp.down_, loader.Matrix(prefix + "down_proj.weight", d_model, d_ff));
  return mlp;
}

void GatedMlp::Forward(const TensorView& x, const TensorView& residual, Workspace& workspace,
                       Stream& stream) const {
  const Workspace::Scope scope(workspace);
  const int64_t d_ff = down_.k();
  const TensorView gate_up = workspace.F32(x.num_rows(), 2 * d_ff);
  const TensorView gate = gate_up.Columns(0, d_ff);
  Launch(kMatmul, {.x = x, .weight = &gate_up_, .y = gate_up, .bias = {}}, stream);
  Launch(kSwiGlu, {.gate = gate, .up = gate_up.Columns(d_ff, d_ff), .y = gate}, stream);
  Launch(kMatmul, {.x = gate, .weight = &down_, .y = residual, .bias = {}, .accumulate = true}, stream);
}

}  // namespace weir
