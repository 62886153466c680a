#include "tests/support/fake_model.h"

#include <limits>

#include "absl/time/clock.h"
#include "runtime/base/check.h"
#include "tests/support/fake_model_hash.h"
#include "tests/support/fake_step.h"

namespace weir::testing {
PagedSpec FakeModel::Paged() const {
  PagedSpec spec;
  if (!options_.paged) return spec;
  spec.num_layers = 1;
  spec.num_kv_heads = 1;
  spec.head_dim = 2;
  spec.dtype = DType::kF32;
  return spec;
}

void FakeStepCpu(const FakeStepArgs& args, Stream&) {
  const RaggedBatch& batch = args.batch;
  const int32_t* cu = batch.cu_seqlens.data<int32_t>();
  const int32_t* ids = args.token_ids.data<int32_t>();
  const int32_t* rows = args.logit_rows.data<int32_t>();
  const auto vocab_size = static_cast<int32_t>(args.logits.dim(1));
  int64_t next_logit = 0;
  for (int n = 0; n < batch.num_seqs; ++n) {
    float* words = args.words.row<float>(batch.slots.data<int32_t>()[n]);
    auto hash = static_cast<uint32_t>(words[0]);
    auto count = static_cast<int64_t>(words[1]);
    WEIR_CHECK(count == batch.positions.data<int64_t>()[n]);  // nothing lost, nothing twice
    bool poisoned = false;
    for (int t = cu[n]; t < cu[n + 1]; ++t) {
      hash = FakeHash(hash, ids[t]);
      if (!args.keys.empty()) {
        const auto key = [&](int64_t position, int dim) -> float& {  // keys lie [head_dim, tokens] in a block
          const int32_t block = batch.block_tables.row<int32_t>(n)[position / kKvBlockTokens];
          return args.keys.row<float>(block)[dim * kKvBlockTokens + position % kKvBlockTokens];
        };
        key(count, 0) = static_cast<float>(ids[t]);
        key(count, 1) = static_cast<float>(count);
        for (int64_t p = 0; p <= count; ++p) WEIR_CHECK(key(p, 1) == static_cast<float>(p));
      }
      ++count;
      poisoned = poisoned || ids[t] == args.poison_id;
      if (next_logit < args.logits.num_rows() && rows[next_logit] == t) {
        float* row = args.logits.row<float>(next_logit++);
        const int32_t next = FakeNext(hash, count, vocab_size);
        for (int32_t i = 0; i < vocab_size; ++i)
          row[i] = poisoned ? std::numeric_limits<float>::quiet_NaN() : FakeLogit(i, next);
      }
    }
    words[0] = static_cast<float>(hash);
    words[1] = static_cast<float>(count);
  }
  WEIR_CHECK(next_logit == args.logits.num_rows());
}

void FakeModel::Forward(const StepInput& input, const StepState& state, TensorView logits, Workspace&,
                        Stream& stream) const {
  if (on_step) on_step(input, state);
  if (options_.step_time > absl::ZeroDuration()) absl::SleepFor(options_.step_time);
  steps_.fetch_add(1);
  tokens_.fetch_add(input.batch.num_tokens);
  Launch(kFakeStep,
         {.batch = input.batch,
          .token_ids = input.token_ids,
          .logit_rows = input.logit_rows,
          .words = state.fixed[0],
          .keys = options_.paged ? state.paged[0].keys : TensorView(),
          .logits = logits,
          .poison_id = options_.poison_id},
         stream);
}

int32_t FakeModel::NextToken(const std::vector<int32_t>& tokens, int32_t vocab_size) {
  uint32_t hash = 0;
  for (const int32_t id : tokens) hash = FakeHash(hash, id);
  return FakeNext(hash, static_cast<int64_t>(tokens.size()), vocab_size);
}

std::vector<int32_t> FakeModel::Generate(std::vector<int32_t> prompt, int n, int32_t vocab_size) {
  std::vector<int32_t> out;
  for (int i = 0; i < n; ++i) {
    out.push_back(NextToken(prompt, vocab_size));
    prompt.push_back(out.back());
  }
  return out;
}

FakeText::FakeText(int32_t size) {
  for (int32_t id = 0; id < size; ++id) {
    std::string piece(1, static_cast<char>('a' + id % 26));
    if (id % 8 == 7) piece.push_back(' ');
    pieces_.push_back(piece);
  }
}

EngineModel MakeFakeEngineModel(const FakeModelOptions& options, const RunnerLimits& limits,
                                std::shared_ptr<FakeModel>* model) {
  EngineModel engine_model;
  engine_model.name = "fake";
  auto fake = std::make_shared<FakeModel>(options);
  if (model != nullptr) *model = fake;
  engine_model.model = fake;
  engine_model.text = std::make_shared<FakeText>(options.vocab_size);
  if (options.eos_id >= 0) engine_model.eos_ids = {options.eos_id};
  engine_model.mixer = "fake";
  engine_model.weights_fingerprint = 42;
  engine_model.tokenizer_fingerprint = 43;
  engine_model.limits = limits;
  return engine_model;
}

}  // namespace weir::testing
