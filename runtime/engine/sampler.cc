#include "runtime/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "fmt/format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/engine/sampler.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "runtime/base/check.h"

#ifndef WEIR_SAMPLER_BLOCK_
#define WEIR_SAMPLER_BLOCK_
namespace weir {
// Ids are scanned in blocks; a maximum and a sum for each let later passes skip most of the row.
inline constexpr size_t kBlock = 64;
}  // namespace weir
#endif

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;

// The block as it is, or a copy in `padded` that goes on with -inf. x: f32 [count].
HWY_INLINE const float* FullBlock(const float* x, size_t count, float* padded) {
  if (count >= kBlock) return x;
  std::memcpy(padded, x, count * sizeof(float));
  std::fill(padded + count, padded + kBlock, -std::numeric_limits<float>::infinity());
  return padded;
}

// x: f32 [count], block_max: f32 [ceil(count / kBlock)]. False when x holds NaN or +inf.
bool BlockMaxima(const float* x, size_t count, float* block_max) {
  const F32 d;
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  auto fine = hn::Eq(largest, largest);
  float padded[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const float* block = FullBlock(x + begin, count - begin, padded);
    auto max = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto v = hn::LoadU(d, block + i);
      fine = hn::And(fine, hn::Le(v, largest));
      max = hn::Max(max, v);
    }
    block_max[begin / kBlock] = hn::GetLane(hn::MaxOfLanes(d, max));
  }
  return hn::AllTrue(d, fine);
}

// exp((x - max) * scale) of one block. x: f32 [count], y: f32 [kBlock], zero from count on.
void ExpBlock(const float* x, size_t count, float max, float scale, float* y) {
  const F32 d;
  float padded[kBlock];
  const float* block = FullBlock(x, count, padded);
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto v = hn::Mul(hn::Sub(hn::LoadU(d, block + i), hn::Set(d, max)), hn::Set(d, scale));
    hn::StoreU(hn::Exp(d, v), d, y + i);
  }
}

// Sums of the same by block. x: f32 [count], block_sum: f32 [ceil(count / kBlock)].
void BlockExpSums(const float* x, size_t count, float max, float scale, float* block_sum) {
  const F32 d;
  float padded[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const float* block = FullBlock(x + begin, count - begin, padded);
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto v = hn::Mul(hn::Sub(hn::LoadU(d, block + i), hn::Set(d, max)), hn::Set(d, scale));
      sum = hn::Add(sum, hn::Exp(d, v));
    }
    block_sum[begin / kBlock] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// How many of one block exceed `bound`, or reach it. x: f32 [count].
size_t CountBeyond(const float* x, size_t count, float bound, bool or_equal) {
  const F32 d;
  const auto limit = hn::Set(d, bound);
  float padded[kBlock];
  const float* block = FullBlock(x, count, padded);
  size_t beyond = 0;
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, block + i);
    beyond += hn::CountTrue(d, or_equal ? hn::Ge(v, limit) : hn::Gt(v, limit));
  }
  return beyond;
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(BlockMaxima);
HWY_EXPORT(ExpBlock);
HWY_EXPORT(BlockExpSums);
HWY_EXPORT(CountBeyond);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// What finite penalties and biases make of a finite logit stays finite; -inf stays a ban.
float Clamped(float logit) { return logit == -kInfinity ? logit : std::clamp(logit, -kLargest, kLargest); }

// One float lower, for thresholds that rounding must not raise.
float Below(float value) { return std::nextafter(value, -kInfinity); }

// The type's largest value as `high` stands for no upper bound; infinity and NaN are refused all the same.
template <class T>
void RequireRange(const char* field, T value, T low, T high, const char* meaning,
                  std::vector<FieldViolation>* violations) {
  if (low <= value && value <= high) return;
  const std::string range = high < std::numeric_limits<T>::max() ? fmt::format("between {} and {}", low, high)
                            : std::is_integral_v<T>              ? fmt::format("at least {}", low)
                                                    : fmt::format("a finite number of at least {}", low);
  violations->push_back({field, fmt::format("must be {} ({}), got {}", range, meaning, value)});
}

void CheckLogitBias(const SamplingParams& params, int32_t vocab_size,
                    std::vector<FieldViolation>* violations) {
  const auto& bias = params.logit_bias;
  if (bias.size() > static_cast<size_t>(kMaxLogitBias)) {
    violations->push_back(
        {"logit_bias", fmt::format("may have at most {} entries, got {}", kMaxLogitBias, bias.size())});
    return;
  }
  constexpr size_t kMaxReported = 16;
  const size_t limit = violations->size() + kMaxReported;
  for (size_t i = 0; i < bias.size() && violations->size() < limit; ++i) {
    const auto [id, value] = bias[i];
    if (!(0 <= id && id < vocab_size)) {
      violations->push_back(
          {"logit_bias", fmt::format("names id {}, but the vocabulary has ids 0 to {}", id, vocab_size - 1)});
    } else if (i > 0 && bias[i - 1].first >= id) {
      violations->push_back(
          {"logit_bias", fmt::format("must name ids in ascending order and each one once; {} follows {}", id,
                                     bias[i - 1].first)});
    }
    if (value != -kInfinity && !(-100.0f <= value && value <= 100.0f)) {
      violations->push_back(
          {"logit_bias", fmt::format("of id {} must be between -100 and 100, or -inf (a ban, "
                                     "as -100 is), got {}",
                                     id, value)});
    }
  }
}

}  // namespace

void TokenHistory::Add(int32_t id, bool is_output) {
  const uint64_t bit = uint64_t{1} << (next % 64);
  ids[next] = id;
  output_bits[next / 64] = (output_bits[next / 64] & ~bit) | (is_output ? bit : 0);
  next = (next + 1) % kCapacity;
  size = std::min<uint32_t>(size + 1, kCapacity);
}

bool TokenHistory::IsValid(int32_t vocab_size) const {
  if (size > kCapacity || next >= kCapacity || (size < kCapacity && next != size)) return false;
  return std::all_of(ids, ids + size, [=](int32_t id) { return 0 <= id && id < vocab_size; });
}

std::vector<FieldViolation> Check(const SamplingParams& params, int32_t vocab_size) {
  std::vector<FieldViolation> violations;
  constexpr int32_t kAnyInt = std::numeric_limits<int32_t>::max();
  RequireRange("temperature", params.temperature, 0.0f, kLargest, "0 takes the most likely token",
               &violations);
  RequireRange("top_k", params.top_k, -1, kAnyInt, "0 and -1 keep all tokens", &violations);
  RequireRange("top_p", params.top_p, 0.0f, 1.0f, "1 keeps all tokens", &violations);
  RequireRange("min_p", params.min_p, 0.0f, 1.0f, "0 keeps all tokens", &violations);
  RequireRange("repetition_penalty", params.repetition_penalty, 0.01f, 100.0f, "1 has no effect",
               &violations);
  RequireRange("presence_penalty", params.presence_penalty, -2.0f, 2.0f, "0 has no effect", &violations);
  RequireRange("frequency_penalty", params.frequency_penalty, -2.0f, 2.0f, "0 has no effect", &violations);
  RequireRange("penalty_window", params.penalty_window, 0, TokenHistory::kCapacity, "most recent tokens",
               &violations);
  RequireRange("top_logprobs", params.top_logprobs, 0, std::min(kMaxTopLogprobs, vocab_size),
               "0 reports the chosen token only", &violations);
  RequireRange("min_tokens", params.min_tokens, 0, kAnyInt, "0 has no effect", &violations);
  CheckLogitBias(params, vocab_size, &violations);
  return violations;
}

absl::Status Validate(const SamplingParams& params, int32_t vocab_size) {
  std::string message;
  for (const FieldViolation& violation : Check(params, vocab_size)) {
    if (!message.empty()) message += "; ";
    message += violation.field + " " + violation.description;
  }
  return message.empty() ? absl::OkStatus() : absl::InvalidArgumentError(message);
}

Sampler::Sampler(int32_t vocab_size, int32_t tokenizer_size)
    : vocab_size_(vocab_size), num_ids_(std::min(vocab_size, tokenizer_size)) {
  WEIR_CHECK(num_ids_ > 0);
  const size_t num_ids = static_cast<size_t>(num_ids_);
  const size_t num_blocks = (num_ids + kBlock - 1) / kBlock;
  block_max_.resize(num_blocks);
  block_sum_.resize(num_blocks);
  select_.resize(num_blocks);
  candidates_.reserve(num_ids);
  seen_.resize(num_ids);
  originals_.reserve(kMaxLogitBias + TokenHistory::kCapacity);
}

bool Sampler::Before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

Sampler::Peak Sampler::FindPeak(const float* logits) {
  Peak peak;
  peak.finite = HWY_DYNAMIC_DISPATCH(BlockMaxima)(logits, static_cast<size_t>(num_ids_), block_max_.data());
  if (!peak.finite) return peak;
  const auto block = std::max_element(block_max_.begin(), block_max_.end());  // the first of equals
  peak.max = *block;
  const float* from = logits + (block - block_max_.begin()) * kBlock;
  peak.arg_max = static_cast<int32_t>(std::find(from, logits + num_ids_, peak.max) - logits);
  return peak;
}

void Sampler::EditOne(float* logits, int32_t id, float value, EditSummary* summary) {
  const float old = logits[id];
  if (!(old <= kLargest)) summary->finite = false;
  if (value == -kInfinity && old != -kInfinity) summary->banned = true;
  if (originals_.size() < originals_.capacity()) originals_.emplace_back(id, old);
  logits[id] = Clamped(value);
}

Sampler::EditSummary Sampler::Edit(float* logits, const SamplingParams& params, const TokenHistory& history,
                                   std::span<const int32_t> suppressed_ids) {
  EditSummary summary;
  originals_.clear();
  for (const auto& [id, bias] : params.logit_bias) {
    // A padding row of a vocabulary wider than the tokenizer.
    if (id >= num_ids_) continue;
    EditOne(logits, id, bias <= kBanBias ? -kInfinity : logits[id] + bias, &summary);
  }
  const bool has_penalties = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                             params.frequency_penalty != 0.0f;
  const uint32_t window =
      has_penalties ? std::min(history.size, static_cast<uint32_t>(params.penalty_window)) : 0;
  for (uint32_t age = 0; age < window; ++age) {
    const int32_t id = history.IdAt(age);
    if (id < 0 || id >= num_ids_) continue;
    if (seen_[id] == 0) seen_[id] = 1;
    if (history.IsOutputAt(age)) ++seen_[id];
  }
  for (uint32_t age = 0; age < window; ++age) {
    const int32_t id = history.IdAt(age);
    if (id < 0 || id >= num_ids_ || seen_[id] == 0) continue;
    const float outputs = static_cast<float>(seen_[id] - 1);
    seen_[id] = 0;
    float value =
        logits[id] > 0 ? logits[id] / params.repetition_penalty : logits[id] * params.repetition_penalty;
    value -= outputs * params.frequency_penalty + (outputs > 0 ? params.presence_penalty : 0.0f);
    EditOne(logits, id, value, &summary);
  }
  for (const int32_t id : suppressed_ids) {
    if (id < 0 || id >= num_ids_) continue;
    EditOne(logits, id, -kInfinity, &summary);
  }
  return summary;
}

void Sampler::FillLogprobs(const float* logits, const Peak& peak, int32_t num_top, SampleResult* result) {
  HWY_DYNAMIC_DISPATCH(BlockExpSums)
  (logits, static_cast<size_t>(num_ids_), peak.max, 1.0f, block_sum_.data());
  log_sum_exp_ = peak.max + std::log(std::accumulate(block_sum_.begin(), block_sum_.end(), 0.0));
  num_top = std::min(num_top, kMaxTopLogprobs);
  if (num_top <= 0) return;
  Gather(logits, KthBlockMax(num_top), peak.max, 1.0f);
  const size_t count = std::min(candidates_.size(), static_cast<size_t>(num_top));
  std::partial_sort(candidates_.begin(), candidates_.begin() + count, candidates_.end(), Before);
  for (size_t i = 0; i < count; ++i) result->top[i] = {candidates_[i].id, Logprob(candidates_[i].logit)};
  result->num_top = static_cast<int32_t>(count);
}

TargetScore Sampler::ScoreOf(std::span<const float> logits, int32_t id) {
  WEIR_CHECK(logits.size() == static_cast<size_t>(vocab_size_) && id >= 0 && id < num_ids_);
  const Peak peak = FindPeak(logits.data());
  if (!peak.finite || peak.max == -kInfinity) return {};
  FillLogprobs(logits.data(), peak, 0, nullptr);
  return {Logprob(logits[id]), RankOf(logits.data(), id)};
}

// 1 and the ids before `id`: those with a larger logit, and lower ids with the same. block_max_ is the row's,
// and of what a trained model expects it leaves a block or two to look into.
int32_t Sampler::RankOf(const float* logits, int32_t id) const {
  const auto count_beyond = HWY_DYNAMIC_DISPATCH(CountBeyond);
  const float bound = logits[id];
  const size_t own = static_cast<size_t>(id) / kBlock;
  size_t before = 0;
  for (size_t b = 0; b < block_max_.size(); ++b) {
    if (b == own || block_max_[b] < bound) continue;
    const size_t begin = b * kBlock;
    before += count_beyond(logits + begin, static_cast<size_t>(num_ids_) - begin, bound, b < own);
  }
  const int32_t end = std::min(num_ids_, static_cast<int32_t>((own + 1) * kBlock));
  for (auto i = static_cast<int32_t>(own * kBlock); i < end; ++i)
    before += logits[i] > bound || (logits[i] == bound && i < id) ? 1 : 0;
  return static_cast<int32_t>(before) + 1;
}

float Sampler::Logprob(float logit) const { return static_cast<float>(logit - log_sum_exp_); }

// A lower bound of the k-th largest logit: k blocks hold one that is no smaller.
float Sampler::KthBlockMax(int32_t k) {
  if (static_cast<size_t>(k) > block_max_.size()) return -kInfinity;
  std::copy(block_max_.begin(), block_max_.end(), select_.begin());
  std::nth_element(select_.begin(), select_.begin() + (k - 1), select_.end(), std::greater<float>());
  return select_[k - 1];
}

// Fills candidates_ with the ids whose logit reaches `threshold`; never with banned ones.
void Sampler::Gather(const float* logits, float threshold, float max, float scale) {
  candidates_.clear();
  threshold = std::clamp(threshold, -kLargest, max);
  const auto exp_block = HWY_DYNAMIC_DISPATCH(ExpBlock);
  float weights[kBlock];
  for (size_t b = 0; b < block_max_.size(); ++b) {
    if (block_max_[b] < threshold) continue;
    const size_t begin = b * kBlock;
    const size_t count = std::min(kBlock, static_cast<size_t>(num_ids_) - begin);
    exp_block(logits + begin, count, max, scale, weights);
    for (size_t i = 0; i < count; ++i) {
      const float logit = logits[begin + i];
      if (logit >= threshold) candidates_.push_back({logit, weights[i], static_cast<int32_t>(begin + i)});
    }
  }
}

// Moves the fewest most likely candidates that weigh `target` together to the front and returns their number;
// halving the undecided range keeps it linear where sorting would not be.
size_t Sampler::NucleusSize(double target) {
  size_t low = 0;
  size_t high = candidates_.size();
  double mass = 0;  // of [0, low)
  while (high - low > 16) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(candidates_.begin() + low, candidates_.begin() + middle, candidates_.begin() + high,
                     Before);
    double left = 0;
    for (size_t i = low; i < middle; ++i) left += candidates_[i].weight;
    if (mass + left >= target) {
      high = middle;
    } else {
      mass += left;
      low = middle;
    }
  }
  std::sort(candidates_.begin() + low, candidates_.begin() + high, Before);
  for (size_t i = low; i < high; ++i) {
    mass += candidates_[i].weight;
    if (mass >= target) return i + 1;
  }
  return high;
}

int32_t Sampler::DrawUnfiltered(const float* logits, double total, float max, float scale, double uniform) {
  const double goal = uniform * total;
  double reached = 0;
  size_t block = 0;  // in the end one with weight, even should rounding keep `reached` below the goal
  for (size_t b = 0; b < block_sum_.size(); ++b) {
    if (block_sum_[b] <= 0) continue;
    block = b;
    if (reached + block_sum_[b] > goal) break;
    reached += block_sum_[b];
  }
  float weights[kBlock];
  const size_t begin = block * kBlock;
  const size_t count = std::min(kBlock, static_cast<size_t>(num_ids_) - begin);
  HWY_DYNAMIC_DISPATCH(ExpBlock)(logits + begin, count, max, scale, weights);
  size_t chosen = 0;
  for (size_t i = 0; i < count; ++i) {
    if (weights[i] <= 0) continue;
    chosen = i;
    reached += weights[i];
    if (reached > goal) break;
  }
  return static_cast<int32_t>(begin + chosen);
}

double Sampler::CandidateMass() const {
  double mass = 0;
  for (const Candidate& candidate : candidates_) mass += candidate.weight;
  return mass;
}

// Selection leaves the candidates in an order of the standard library's choice; a draw must not depend on it.
void Sampler::OrderById() {
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

// Gathers at least the most likely ids that weigh `target` of `total` together.
void Sampler::GatherNucleus(const float* logits, float max, float scale, double target, double total) {
  // A few ids for each of the best blocks are enough for most rows of a trained model.
  Gather(logits, KthBlockMax(static_cast<int32_t>((block_max_.size() + 3) / 4)), max, scale);
  if (CandidateMass() >= target) return;
  // Ids this far below the maximum cannot weigh total - target, even if all ids were there.
  const double distance = 1 + std::log(num_ids_ / (total - target));
  Gather(logits, Below(static_cast<float>(max - distance / scale)), max, scale);
}

int32_t Sampler::Draw(const float* logits, const SamplingParams& params, const Peak& peak,
                      uint64_t token_index) {
  // Bounded so that neither a denormal temperature nor a huge one makes 0 * inf.
  const float scale = std::clamp(1.0f / std::max(params.temperature, 1e-37f), 1e-37f, 1e37f);
  const bool use_top_k = params.top_k > 0 && params.top_k < num_ids_;
  const bool use_top_p = params.top_p < 1.0f;
  const bool use_min_p = params.min_p > 0.0f;
  const double uniform = UniformDraw(params.seed, token_index);
  // What float weights leave uncertain goes to the smaller nucleus.
  const double top_p = std::max(0.0, params.top_p - 1e-6);

  if (use_top_k) {
    Gather(logits, KthBlockMax(params.top_k), peak.max, scale);
    const size_t k = std::min(static_cast<size_t>(params.top_k), candidates_.size());
    std::nth_element(candidates_.begin(), candidates_.begin() + (k - 1), candidates_.end(), Before);
    candidates_.resize(k);
    if (use_top_p) candidates_.resize(NucleusSize(top_p * CandidateMass()));
  } else if (use_top_p || !use_min_p) {
    HWY_DYNAMIC_DISPATCH(BlockExpSums)
    (logits, static_cast<size_t>(num_ids_), peak.max, scale, block_sum_.data());
    const double total = std::accumulate(block_sum_.begin(), block_sum_.end(), 0.0);
    if (!use_top_p) return DrawUnfiltered(logits, total, peak.max, scale, uniform);
    GatherNucleus(logits, peak.max, scale, top_p * total, total);
    candidates_.resize(NucleusSize(top_p * total));
  } else {
    Gather(logits, Below(static_cast<float>(peak.max + std::log(params.min_p) / scale)), peak.max, scale);
  }
  if (use_top_k || use_top_p) OrderById();
  if (use_min_p) {
    std::erase_if(candidates_,
                  [&](const Candidate& c) { return c.weight < params.min_p && c.id != peak.arg_max; });
  }

  const double goal = uniform * CandidateMass();
  double reached = 0;
  int32_t chosen = peak.arg_max;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight <= 0) continue;
    chosen = candidate.id;
    reached += candidate.weight;
    if (reached > goal) break;
  }
  return chosen;
}

SampleResult Sampler::Sample(std::span<float> logits, const SamplingParams& params,
                             const TokenHistory& history, uint64_t token_index,
                             std::span<const int32_t> suppressed_ids) {
  WEIR_CHECK(logits.size() == static_cast<size_t>(vocab_size_));
  SampleResult result;
  float* row = logits.data();
  const bool want_logprobs = params.logprobs || params.top_logprobs > 0;
  if (want_logprobs) {
    const Peak raw = FindPeak(row);
    if (!raw.finite || raw.max == -kInfinity) return result;
    FillLogprobs(row, raw, params.top_logprobs, &result);
  }
  const EditSummary edits = Edit(row, params, history, suppressed_ids);
  const Peak peak = FindPeak(row);
  if (!edits.finite || !peak.finite || peak.max == -kInfinity) {
    result.num_top = 0;
    result.no_candidate = edits.finite && peak.finite && edits.banned;
    return result;
  }
  result.finite = true;
  result.token = params.temperature == 0.0f ? peak.arg_max : Draw(row, params, peak, token_index);
  if (want_logprobs) {
    const auto original = std::find_if(originals_.begin(), originals_.end(),
                                       [&](const auto& entry) { return entry.first == result.token; });
    result.logprob = Logprob(original != originals_.end() ? original->second : row[result.token]);
  }
  return result;
}

}  // namespace weir
#endif  // HWY_ONCE
