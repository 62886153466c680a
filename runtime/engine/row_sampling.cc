#include "runtime/engine/row_sampling.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/sample/sample.h"

namespace weir {
namespace {

template <class T>
constexpr int64_t kWords = static_cast<int64_t>(sizeof(T)) / 4;

}  // namespace

absl::StatusOr<RowSampling> RowSampling::Create(int max_rows, int32_t num_ids, Device& device) {
  WEIR_RETURN_IF_ERROR(RequireColumn(kSampleRows, device.backend()));
  RowSampling sampling;
  sampling.num_ids_ = num_ids;
  WEIR_ASSIGN_OR_RETURN(sampling.host_params_, device.AllocateHost(max_rows * sizeof(RowParams)));
  WEIR_ASSIGN_OR_RETURN(sampling.host_samples_, device.AllocateHost(max_rows * sizeof(RowSample)));
  sampling.entries_.resize(max_rows);
  sampling.host_rows_.reserve(max_rows);
  WEIR_ASSIGN_OR_RETURN(sampling.device_params_, device.Allocate(max_rows * sizeof(RowParams)));
  WEIR_ASSIGN_OR_RETURN(sampling.device_samples_, device.Allocate(max_rows * sizeof(RowSample)));
  return sampling;
}

bool RowSampling::Takes(const SamplingParams& params, std::span<const int32_t> suppressed_ids) {
  return params.logit_bias.empty() && params.repetition_penalty == 1.0f && params.presence_penalty == 0.0f &&
         params.frequency_penalty == 0.0f && params.top_logprobs == 0 &&
         suppressed_ids.size() <= static_cast<size_t>(kMaxRowSuppressed);
}

void RowSampling::Clear() {
  num_samples_ = 0;
  host_rows_.clear();
}

void RowSampling::KeepForHost(int row) {
  entries_[row] = -1;
  host_rows_.push_back(row);
}

RowParams* RowSampling::NewEntry(int row) {
  WEIR_CHECK((num_samples_ + 1) * static_cast<int64_t>(sizeof(RowParams)) <= host_params_.bytes());
  RowParams* const entry = reinterpret_cast<RowParams*>(host_params_.data()) + num_samples_;
  *entry = RowParams();
  entry->row = row;
  entries_[row] = num_samples_++;
  return entry;
}

void RowSampling::Add(int row, const SamplingParams& params, uint64_t token_index,
                      std::span<const int32_t> suppressed_ids) {
  if (!Takes(params, suppressed_ids)) return KeepForHost(row);
  RowParams* entry = NewEntry(row);
  entry->seed = params.seed;
  entry->token_index = token_index;
  entry->temperature = params.temperature;
  entry->top_k = params.top_k;
  entry->top_p = params.top_p;
  entry->min_p = params.min_p;
  entry->logprob = params.logprobs ? 1 : 0;
  entry->num_suppressed = static_cast<int32_t>(suppressed_ids.size());
  std::copy(suppressed_ids.begin(), suppressed_ids.end(), entry->suppressed);
}

void RowSampling::AddTarget(int row, int32_t id) {
  if (id < 0 || id >= num_ids_) return KeepForHost(row);
  NewEntry(row)->target = id;
}

void RowSampling::Run(const TensorView& logits, float* logits_host, Stream& stream) {
  const int64_t num_samples = num_samples_;
  if (num_samples > 0) {
    stream.CopyToDevice(device_params_.data(), params(), num_samples * sizeof(RowParams));
    SampleRowsArgs args;
    args.logits = logits;
    args.num_ids = num_ids_;
    args.params = TensorView(device_params_.data(), DType::kI32, {num_samples, kWords<RowParams>});
    args.samples = TensorView(device_samples_.data(), DType::kI32, {num_samples, kWords<RowSample>});
    Launch(kSampleRows, args, stream);
    stream.CopyToHost(host_samples_.data(), device_samples_.data(), num_samples * sizeof(RowSample));
  }
  // Neighbours in one copy.
  for (size_t i = 0; i < host_rows_.size();) {
    size_t end = i + 1;
    while (end < host_rows_.size() && host_rows_[end] == host_rows_[end - 1] + 1) ++end;
    const int64_t first = host_rows_[i] * logits.row_size();
    WEIR_CHECK(logits.row_stride() == logits.row_size());
    stream.CopyToHost(logits_host + first, logits.data<float>() + first,
                      static_cast<int64_t>(end - i) * logits.row_size() * sizeof(float));
    i = end;
  }
}

SampleResult RowSampling::Result(int row) const {
  const RowSample& sample = samples()[entries_[row]];
  SampleResult result;
  result.token = sample.token;
  result.finite = sample.finite != 0;
  result.no_candidate = sample.no_candidate != 0;
  result.logprob = sample.logprob;
  return result;
}

TargetScore RowSampling::Score(int row) const {
  const RowSample& sample = samples()[entries_[row]];
  if (sample.finite == 0) return {};
  return {sample.logprob, sample.rank};
}

}  // namespace weir
