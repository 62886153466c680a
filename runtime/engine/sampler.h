// Sampler: one token from one row of logits. Pure: the draw depends on (logits, parameters, history, seed,
// token index) and on nothing else, so neither batch-mates nor earlier requests can change it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/ops/sample/uniform_draw.h"

namespace weir {

inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr int32_t kMaxLogitBias = 1024;
// A bias at or below this bans the id, as -inf does.
inline constexpr float kBanBias = -100.0f;

// The last kCapacity ids of a session, prompt and output. Part of the session snapshot: no padding, no
// pointer.
struct TokenHistory {
  static constexpr int kCapacity = 256;

  int32_t ids[kCapacity] = {};
  uint64_t output_bits[kCapacity / 64] = {};  // bit i: ids[i] was generated, not given
  uint32_t next = 0;                          // where the next id goes
  uint32_t size = 0;                          // ids held, at most kCapacity

  void Add(int32_t id, bool is_output);
  // age 0 is the newest id; age < size.
  int32_t IdAt(uint32_t age) const { return ids[IndexOf(age)]; }
  bool IsOutputAt(uint32_t age) const {
    const uint32_t i = IndexOf(age);
    return (output_bits[i / 64] >> (i % 64)) & 1;
  }
  // False for bytes that no Add() sequence over this vocabulary can have made (a damaged import).
  bool IsValid(int32_t vocab_size) const;

 private:
  uint32_t IndexOf(uint32_t age) const { return (next + kCapacity - 1 - age) % kCapacity; }
};
static_assert(std::is_trivially_copyable_v<TokenHistory>);
static_assert(sizeof(TokenHistory) == 4 * 256 + 32 + 8);

// Applied in this order: logit_bias, penalties, suppressed ids, temperature, top_k, top_p, min_p. Each filter
// keeps at least the arg-max. What is left is drawn from in the order of ids (UniformDraw).
struct SamplingParams {
  float temperature = 1.0f;         // 0: arg-max, lowest id on a tie; seed and filters then have no effect
  int32_t top_k = 0;                // 0, -1, or vocabulary size and more: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // drops ids less likely than min_p times the most likely one; 0: off
  float repetition_penalty = 1.0f;  // prompt and output; once per id: logit > 0 ? logit / p : logit * p
  float presence_penalty = 0.0f;    // output only; once per id
  float frequency_penalty = 0.0f;   // output only; per occurrence
  int32_t penalty_window = TokenHistory::kCapacity;   // the penalties see this many most recent ids
  std::vector<std::pair<int32_t, float>> logit_bias;  // sorted by id, each id once
  uint64_t seed = 0;                                  // every value is a seed of its own
  bool logprobs = false;                              // fill SampleResult::logprob
  int32_t top_logprobs = 0;                           // fill SampleResult::top; implies logprobs
  int32_t min_tokens = 0;  // the engine passes the end ids as suppressed_ids until this many are generated
};

struct FieldViolation {
  std::string field;
  std::string description;
};

// Everything that is wrong with `params` for a vocabulary of `vocab_size` ids (the tokenizer's); empty when
// fine.
std::vector<FieldViolation> Check(const SamplingParams& params, int32_t vocab_size);
// The same as one INVALID_ARGUMENT status.
absl::Status Validate(const SamplingParams& params, int32_t vocab_size);

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

// Log-probabilities are those of the model: log-softmax of the row as it came in, before bias, penalties,
// temperature and filters, over the tokenizer's ids.
struct SampleResult {
  int32_t token = -1;
  // False: nothing was sampled. Either a logit is NaN or +inf or all are -inf (the model's or the state's
  // fault), or no_candidate is set.
  bool finite = false;
  bool no_candidate = false;  // bans and suppressed ids left nothing: the request's fault
  float logprob = 0;
  int32_t num_top = 0;
  std::array<TokenLogprob, kMaxTopLogprobs> top;  // [num_top], most likely first, lowest id first on a tie
};

// Of a given id in a row of logits, over the tokenizer's ids.
struct TargetScore {
  float logprob = std::numeric_limits<float>::quiet_NaN();  // NaN: the row is not finite
  int32_t rank = 0;  // 1: temperature 0 takes it; of equal logits the lowest id comes first
};

// Owner: one worker thread each; holds scratch only. Sample() never allocates.
class Sampler {
 public:
  // `vocab_size`: width of a logits row. `tokenizer_size`: ids from here on are padding rows and never drawn.
  Sampler(int32_t vocab_size, int32_t tokenizer_size);

  // logits: f32 [vocab_size], modified. `token_index`: position of the token to be drawn in the session's
  // stream of draws. `params` passed Check(). `suppressed_ids` outside the vocabulary are ignored.
  SampleResult Sample(std::span<float> logits, const SamplingParams& params, const TokenHistory& history,
                      uint64_t token_index, std::span<const int32_t> suppressed_ids);

  // Log-probability, as SampleResult has it, and rank of `id` in a row, f32 [vocab_size], which is not
  // modified.
  TargetScore ScoreOf(std::span<const float> logits, int32_t id);

  int32_t vocab_size() const { return vocab_size_; }

 private:
  struct Candidate {
    float logit;
    float weight;  // exp((logit - max) / temperature)
    int32_t id;
  };
  struct Peak {
    float max = 0;
    int32_t arg_max = -1;
    bool finite = false;
  };
  struct EditSummary {
    bool finite = true;   // no NaN or +inf among the logits that were edited
    bool banned = false;  // some id was taken out
  };

  // Below: `scale` is 1 / temperature, `max` the largest logit.
  static bool Before(const Candidate& a, const Candidate& b);
  Peak FindPeak(const float* logits);
  EditSummary Edit(float* logits, const SamplingParams& params, const TokenHistory& history,
                   std::span<const int32_t> suppressed_ids);
  void EditOne(float* logits, int32_t id, float value, EditSummary* summary);
  void FillLogprobs(const float* logits, const Peak& peak, int32_t num_top, SampleResult* result);
  float Logprob(float logit) const;
  int32_t RankOf(const float* logits, int32_t id) const;
  float KthBlockMax(int32_t k);
  void Gather(const float* logits, float threshold, float max, float scale);
  double CandidateMass() const;
  void OrderById();
  void GatherNucleus(const float* logits, float max, float scale, double target, double total);
  size_t NucleusSize(double target);
  int32_t Draw(const float* logits, const SamplingParams& params, const Peak& peak, uint64_t token_index);
  int32_t DrawUnfiltered(const float* logits, double total, float max, float scale, double uniform);

  const int32_t vocab_size_;
  const int32_t num_ids_;   // min(vocab_size, tokenizer_size)
  double log_sum_exp_ = 0;  // of the row as it came in; set by FillLogprobs
  std::vector<float> block_max_;
  std::vector<float> block_sum_;
  std::vector<float> select_;
  std::vector<Candidate> candidates_;
  std::vector<uint16_t> seen_;  // [num_ids]: 1 + outputs in the window; zero between calls
  std::vector<std::pair<int32_t, float>> originals_;  // logits before an edit
};

}  // namespace weir
