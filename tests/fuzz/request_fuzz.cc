// A GenerateRequest as bytes: validation finds every fault, and what it lets through cannot upset the sampler
// or the stop matcher.
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/engine/sampler.h"
#include "server/frontend/validate.h"

namespace {

using namespace weir;

constexpr int32_t kVocabSize = 64;

class Letters final : public TokenText {
 public:
  std::string_view Piece(int32_t id, bool /*at_start*/) const override {
    return std::string_view(kAlphabet).substr(static_cast<size_t>(id), 1);
  }
  bool IsSpecial(int32_t id) const override { return id == 0; }
  int32_t size() const override { return kVocabSize - 3; }

 private:
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,";
};

void Draw(const TurnParams& turn) {
  Sampler sampler(kVocabSize, kVocabSize - 3);
  TokenHistory history;
  for (int i = 0; i < 20; ++i) {
    std::vector<float> logits(kVocabSize);
    for (int32_t j = 0; j < kVocabSize; ++j) logits[j] = std::sin(static_cast<float>(i * 7 + j * 3)) * 20;
    const SampleResult result = sampler.Sample(logits, turn.sampling, history, static_cast<uint64_t>(i), {});
    if (result.no_candidate) return;
    WEIR_CHECK(result.finite);
    WEIR_CHECK(result.token >= 0 && result.token < kVocabSize - 3);
    WEIR_CHECK(result.num_top >= 0 && result.num_top <= kMaxTopLogprobs);
    history.Add(result.token, true);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const LoadedModel* const model = [] {
    auto* made = new LoadedModel;
    made->text = std::make_shared<Letters>();
    return made;
  }();
  v1::GenerateRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  FieldViolations violations;
  TurnParams turn;
  CheckPrompt(request.prompt(), *model, 1 << 16, &violations);
  ReadSampling(request.sampling(), request.output(), request.stop(), *model, &turn.sampling, &violations);
  ReadStop(request.stop(), *model, &turn, &violations);
  if (!violations.empty()) {
    const absl::Status status = violations.ToStatus();
    WEIR_CHECK(status.code() == absl::StatusCode::kInvalidArgument && status.message().size() < 2048);
    return 0;
  }
  WEIR_CHECK(Check(turn.sampling, kVocabSize - 3).empty());
  WEIR_CHECK(turn.max_tokens >= 0);
  Draw(turn);
  return 0;
}
