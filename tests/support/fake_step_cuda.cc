#include "tests/support/fake_step_cuda.h"

#include "runtime/ops/attention/attention.h"
#include "tests/support/fake_step.h"

namespace weir::testing {

void FakeStepCuda(const FakeStepArgs& args, Stream& stream) {
  CudaFakeStep step;
  step.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  step.slots = args.batch.slots.data<int32_t>();
  step.positions = args.batch.positions.data<int64_t>();
  step.token_ids = args.token_ids.data<int32_t>();
  step.logit_rows = args.logit_rows.data<int32_t>();
  step.words = args.words.data<float>();
  step.words_stride = args.words.row_stride();
  step.logits = args.logits.data<float>();
  step.num_logits = static_cast<int>(args.logits.num_rows());
  step.vocab_size = static_cast<int>(args.logits.dim(1));
  step.poison_id = args.poison_id;
  if (!args.keys.empty()) {
    step.keys = args.keys.data<float>();
    step.keys_stride = args.keys.row_stride();
    step.block_tables = args.batch.block_tables.data<int32_t>();
    step.max_blocks = args.batch.block_tables.dim(1);
    step.block_tokens = kKvBlockTokens;
  }
  LaunchCudaFakeStep(step, args.batch.num_seqs, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir::testing
