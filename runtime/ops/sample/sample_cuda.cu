// Sampling on NVIDIA GPUs, a block for each row. The row is read from memory once; what follows finds it in
// the L2 cache, and mostly a few segments of it. Bytes that must move: 4 · num_ids a row.
#include "runtime/device/cuda_launch.cuh"
#include "runtime/ops/sample/sample_cuda.h"
#include "runtime/ops/sample/sample_search.cuh"
#include "runtime/ops/sample/uniform_draw.h"

namespace weir {
namespace {

using namespace sample_search;  // NOLINT(google-build-using-namespace)

constexpr int kListSize = 1024;
// The k-th largest of the threads' maxima is a bound of the k-th largest logit, and a good one up to here.
constexpr int kMaxListK = 3 * kThreads / 4;
constexpr int kNucleusGuess = kThreads / 2;  // the same for top_p
constexpr int kBoundSteps = 18;

// The block's working memory; arrays [num_segments] follow it.
struct Shared {
  float list[kListSize];  // the best logits in the order of ids
  int ids[kListSize];
  float staged[kListSize];  // the same as they came, segments in any order
  int staged_ids[kListSize];
  float thread_max[kThreads];
  double partial[kWays][kWarps];
  float list_sums[kListSize / kSegment];
  uint32_t floor;  // key
  int num_staged;  // and those that found no room
  int banned;      // some suppressed id was not -inf
  int beyond;      // ids that come before the target
  double log_sum;  // of the weights of the row as it came, at temperature 1
};

__host__ __device__ constexpr int NumSegments(int num_ids) { return (num_ids + kSegment - 1) / kSegment; }

// A row as a block works on it. All threads hold the same values.
struct Row {
  Logits logits;
  int num_segments;

  __device__ Shared& shared() const { return *DynamicShared<Shared>(); }
  // Of segments:
  __device__ float* max() const { return reinterpret_cast<float*>(DynamicShared<Shared>() + 1); }
  __device__ float* sums() const { return max() + num_segments; }
  __device__ int* counts() const { return reinterpret_cast<int*>(sums() + num_segments); }
  // Where their logits are staged, then how far they move.
  __device__ int* at() const { return counts() + num_segments; }
};

__device__ Row MakeRow(const CudaSampleRows& rows, const RowParams& params) {
  Row row;
  row.logits.x = rows.logits + params.row * rows.stride;
  row.logits.count = rows.num_ids;
  row.logits.aligned = reinterpret_cast<uintptr_t>(row.logits.x) % 16 == 0;
  row.num_segments = NumSegments(rows.num_ids);
  return row;
}

// Takes the suppressed ids out of the row. False when one of them was NaN or +inf.
__device__ bool Suppress(const Row& row, float* logits, const RowParams& params) {
  bool fine = true;
  if (Warp() == 0) {
    const int n = min(params.num_suppressed, kMaxRowSuppressed);
    const int id = Lane() < n ? params.suppressed[Lane()] : -1;
    const bool inside = id >= 0 && id < row.logits.count;
    const float old = inside ? logits[id] : -INFINITY;
    __syncwarp();  // an id that is named twice is read before it is written
    const unsigned same = __match_any_sync(kAllLanes, static_cast<unsigned>(id));
    if (inside && FirstLane(same) == Lane()) logits[id] = -INFINITY;
    fine = old <= FLT_MAX;
    const bool banned = __any_sync(kAllLanes, old != -INFINITY) != 0;
    if (Lane() == 0) row.shared().banned = banned ? 1 : 0;
  }
  return __syncthreads_and(fine ? 1 : 0) != 0;
}

// The first reading: maxima, and where wanted the sums of weights, which are relative to the row's maximum in
// the end. Returns that maximum and whether neither NaN nor +inf is there.
__device__ float Scan(const Row& row, float scale, bool want_sums, bool* finite) {
  bool fine = true;
  float thread_max = -INFINITY;
  for (int segment = Warp(); segment < row.num_segments; segment += kWarps) {
    float x[kGroups][4];
    for (int group = 0; group < kGroups; ++group) LoadGroup(row.logits, segment, group, x[group]);
    float max = -INFINITY;
    for (int group = 0; group < kGroups; ++group) {
      for (int i = 0; i < 4; ++i) {
        fine = fine && x[group][i] <= FLT_MAX;
        max = fmaxf(max, x[group][i]);
      }
    }
    thread_max = fmaxf(thread_max, max);
    max = WarpMax(max);
    float sum = 0.0f;
    if (want_sums && max > -INFINITY) {
      const Softmax weigh = {max, scale};
      for (int group = 0; group < kGroups; ++group)
        for (int i = 0; i < 4; ++i) sum += weigh(x[group][i]);
      sum = WarpSum(sum);
    }
    if (Lane() == 0) {
      row.max()[segment] = max;
      row.sums()[segment] = sum;
    }
  }
  row.shared().thread_max[threadIdx.x] = thread_max;
  *finite = __syncthreads_and(fine ? 1 : 0) != 0;
  float max = -INFINITY;
  for (int i = Lane(); i < row.num_segments; i += kLanes) max = fmaxf(max, row.max()[i]);
  max = WarpMax(max);
  if (want_sums && *finite && max > -INFINITY) {
    const Softmax weigh = {max, scale};
    for (int i = static_cast<int>(threadIdx.x); i < row.num_segments; i += kThreads)
      row.sums()[i] *= weigh(row.max()[i]);
  }
  __syncthreads();
  return max;
}

// The lowest id of the largest logit; warp by warp.
__device__ int ArgMax(const Row& row, float max) {
  for (int first = 0; first < row.num_segments; first += kLanes) {
    const int segment = first + Lane();
    const unsigned hits = __ballot_sync(kAllLanes, segment < row.num_segments && row.max()[segment] == max);
    if (hits != 0) return FirstEqual(row.logits, first + FirstLane(hits), max);
  }
  return 0;
}

// Counts the ids that come before `id`, whose logit is given: those with a larger one, and lower ids with the
// same.
__device__ void CountBefore(const Row& row, int id, float logit) {
  int count = 0;
  for (int segment = Warp(); segment < row.num_segments; segment += kWarps) {
    if (row.max()[segment] < logit) continue;
    for (int group = 0; group < kGroups; ++group) {
      float x[4];
      LoadGroup(row.logits, segment, group, x);
      for (int i = 0; i < 4; ++i)
        count += x[i] > logit || (x[i] == logit && IndexIn(segment, group) + i < id) ? 1 : 0;
    }
  }
  count = WarpSum(count);
  if (Lane() == 0 && count > 0) atomicAdd(&row.shared().beyond, count);
  __syncthreads();
}

// ---- the filters, over the whole row by the block or over the list by one warp

struct RowSearch {
  const Row& row;
  __device__ const Logits& logits() const { return row.logits; }
  __device__ float* sums() const { return row.sums(); }
  __device__ int num_segments() const { return row.num_segments; }

  template <class Weigh>
  __device__ void Sum(const Weigh& weigh) const {
    __syncthreads();  // whoever still reads the sums
    for (int segment = Warp(); segment < num_segments(); segment += kWarps) {
      const float sum = weigh.None(row.max()[segment]) ? 0.0f : SegmentSum(row.logits, segment, weigh);
      if (Lane() == 0) sums()[segment] = sum;
    }
    __syncthreads();
  }
  __device__ void Narrow(const Measure& measure, double target, Interval* interval) const {
    BlockNarrow(row.logits, row.max(), measure, target, row.shared().partial, interval);
  }
};

struct ListSearch {
  const Logits& list;
  __device__ const Logits& logits() const { return list; }
  __device__ float* sums() const { return DynamicShared<Shared>()->list_sums; }
  __device__ int num_segments() const { return NumSegments(list.count); }

  template <class Weigh>
  __device__ void Sum(const Weigh& weigh) const {
    __syncwarp();
    for (int segment = 0; segment < num_segments(); ++segment) {
      const float sum = SegmentSum(list, segment, weigh);
      if (Lane() == 0) sums()[segment] = sum;
    }
    __syncwarp();
  }
  __device__ void Narrow(const Measure& measure, double target, Interval* interval) const {
    WarpNarrow(list, measure, target, INT_MAX, interval);
  }
};

// Keeps the fewest best logits that reach the target, all where none do.
template <class Search>
__device__ void Cut(const Search& search, bool by_count, double target, uint32_t floor, Kept* kept) {
  const Measure measure = {by_count, kept->softmax};
  Interval interval = {max(floor, kept->cut), Key(kept->softmax.max) + 1};
  search.Narrow(measure, target, &interval);
  const double each = measure(LogitOf(interval.low));
  int last_equal = INT_MAX;
  if (each > 0.0) {
    const double equal = rint((interval.reach - interval.above) / each);
    const double needed = fmax(1.0, ceil((target - interval.above) / each));
    if (needed < equal) {
      const AtCut at_cut = {interval.low};
      search.Sum(at_cut);
      const Place place = FindSegment(search.sums(), search.num_segments(), needed - 1.0);
      last_equal = FindInSegment(search.logits(), place, at_cut, needed - 1.0);
    }
  }
  kept->last_equal = interval.low == kept->cut ? min(kept->last_equal, last_equal) : last_equal;
  kept->cut = interval.low;
}

struct Plan {
  Softmax softmax;
  bool use_top_k, use_top_p;
  double nucleus;       // the weight that top_p wants where top_k is off
  uint32_t floor;       // no key below is wanted or, in the list, there
  bool sums_are_there;  // those of the weights, and no filter changes them
};

// What float weights leave uncertain goes to the smaller nucleus.
__device__ double TopP(const RowParams& params) { return fmax(0.0, params.top_p - 1e-6); }

// An index; warp 0 has it.
template <class Search>
__device__ int FilterAndDraw(const Search& search, const RowParams& params, const Plan& plan) {
  Kept kept = {plan.softmax};
#pragma unroll 1
  for (int filter = 0; filter < 2; ++filter) {
    const bool by_count = filter == 0;
    if (!(by_count ? plan.use_top_k : plan.use_top_p)) continue;
    double target = by_count ? params.top_k : plan.nucleus;
    if (!by_count && plan.use_top_k) {
      search.Sum(kept);
      target = TopP(params) * Total(search.sums(), search.num_segments());
    }
    // A share of nothing is reached by one.
    Cut(search, by_count, fmax(target, DBL_MIN), plan.floor, &kept);
  }
  kept.min_weight = params.min_p;
  if (!plan.sums_are_there) search.Sum(kept);
  if (Warp() != 0) return 0;
  const double goal =
      UniformDraw(params.seed, params.token_index) * Total(search.sums(), search.num_segments());
  const Place place = FindSegment(search.sums(), search.num_segments(), goal);
  const int index = FindInSegment(search.logits(), place, kept, goal);
  return index >= 0 ? index : FirstEqual(search.logits(), 0, plan.softmax.max);
}

// ---- the list

// Stages the logits from `floor` on, their segments in any order, and sums their weights by segment.
__device__ void Gather(const Row& row, const Softmax& softmax, float floor) {
  Shared& shared = row.shared();
  for (int segment = Warp(); segment < row.num_segments; segment += kWarps) {
    unsigned in[kGroups][4] = {};
    float x[kGroups][4];
    int count = 0;
    float sum = 0.0f;
    if (row.max()[segment] >= floor) {
      for (int group = 0; group < kGroups; ++group) {
        LoadGroup(row.logits, segment, group, x[group]);
        for (int i = 0; i < 4; ++i) {
          const bool wanted = x[group][i] >= floor;
          in[group][i] = __ballot_sync(kAllLanes, wanted);
          count += __popc(in[group][i]);
          if (wanted) sum += softmax(x[group][i]);
        }
      }
      sum = WarpSum(sum);
    }
    int at = 0;
    if (Lane() == 0) {
      if (count > 0) at = atomicAdd(&shared.num_staged, count);
      row.counts()[segment] = count;
      row.at()[segment] = at;
      row.sums()[segment] = sum;
    }
    if (count == 0) continue;
    at = __shfl_sync(kAllLanes, at, 0);
    const unsigned before = (1u << Lane()) - 1;
    for (int group = 0; group < kGroups; ++group) {
      int place = at;
      for (int i = 0; i < 4; ++i) place += __popc(in[group][i] & before);
      for (int i = 0; i < 4; ++i) {
        at += __popc(in[group][i]);
        if ((in[group][i] >> Lane() & 1) == 0) continue;
        if (place < kListSize) {
          shared.staged[place] = x[group][i];
          shared.staged_ids[place] = IndexIn(segment, group) + i;
        }
        ++place;
      }
    }
  }
}

// Brings what is staged into the order of ids.
__device__ void Order(const Row& row) {
  Shared& shared = row.shared();
  if (Warp() == 0) {
    int before = 0;
    for (int first = 0; first < row.num_segments; first += kLanes) {
      const int segment = first + Lane();
      const int count = segment < row.num_segments ? row.counts()[segment] : 0;
      const int through = before + WarpScan(count);
      if (segment < row.num_segments) row.at()[segment] = through - count - row.at()[segment];
      before = __shfl_sync(kAllLanes, through, kLanes - 1);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < shared.num_staged; i += kThreads) {
    const int id = shared.staged_ids[i];
    const int place = i + row.at()[id / kSegment];
    shared.list[place] = shared.staged[i];
    shared.ids[place] = id;
  }
  __syncthreads();
}

// A key that the list begins from: no logit below it will be kept, unless top_p turns out to want more.
__device__ uint32_t FindFloor(const Row& row, const RowParams& params, const Plan& plan) {
  if (row.logits.count <= kListSize) return plan.floor;
  if (Warp() == 0) {
    const Logits maxima = {row.shared().thread_max, kThreads, true};
    Interval interval = {plan.floor, Key(plan.softmax.max) + 1};
    WarpNarrow(maxima, {true, plan.softmax}, plan.use_top_k ? params.top_k : kNucleusGuess, kBoundSteps,
               &interval);
    if (Lane() == 0) row.shared().floor = interval.low;
  }
  __syncthreads();
  return row.shared().floor;
}

// Whether the list holds all that will be kept.
__device__ bool MakeList(const Row& row, const RowParams& params, Plan* plan) {
  if (plan->use_top_k && params.top_k > kMaxListK && row.logits.count > kListSize) return false;
  const uint32_t floor = FindFloor(row, params, *plan);
  Gather(row, plan->softmax, LogitOf(floor));
  __syncthreads();
  // More than top_k asks for, if it does: a bound for the whole row too.
  if (plan->use_top_k) plan->floor = floor;
  if (row.shared().num_staged > kListSize) return false;
  if (!plan->use_top_k && row.logits.count > kListSize && Total(row.sums(), row.num_segments) < plan->nucleus)
    return false;
  plan->floor = floor;
  Order(row);
  return true;
}

// Warp 0 has the result. The sums of weights are there unless top_k or min_p makes them useless.
__device__ int Draw(const Row& row, const RowParams& params, const Softmax& softmax) {
  Plan plan;
  plan.softmax = softmax;
  plan.use_top_k = params.top_k > 0 && params.top_k < row.logits.count;
  plan.use_top_p = params.top_p < 1.0f;
  plan.nucleus = 0.0;
  plan.floor = Key(-FLT_MAX);
  plan.sums_are_there = !plan.use_top_k && !plan.use_top_p && params.min_p <= 0.0f;
  if (plan.use_top_p && !plan.use_top_k) {
    const double total = Total(row.sums(), row.num_segments);
    plan.nucleus = TopP(params) * total;
    // Ids this far below the maximum cannot weigh what the nucleus leaves, even if all ids were there.
    const double distance = 1.0 + log(row.logits.count / (total - plan.nucleus));
    const double bound = softmax.max - distance / softmax.scale;
    if (bound > -FLT_MAX) plan.floor = max(plan.floor, Key(static_cast<float>(bound)) - 1);
    __syncthreads();  // the sums are about to be used anew
  }
  if ((plan.use_top_k || plan.use_top_p) && MakeList(row, params, &plan)) {
    if (Warp() != 0) return 0;
    const Logits list = {row.shared().list, row.shared().num_staged, true};
    return row.shared().ids[FilterAndDraw(ListSearch{list}, params, plan)];
  }
  return FilterAndDraw(RowSearch{row}, params, plan);
}

__global__ void __launch_bounds__(kThreads, 2) SampleRowsKernel(CudaSampleRows rows) {
  const RowParams& params = rows.params[blockIdx.x];
  const Row row = MakeRow(rows, params);
  RowSample sample;
  if (threadIdx.x == 0) {
    rows.samples[blockIdx.x] = sample;
    row.shared().num_staged = 0;
    row.shared().banned = 0;
    row.shared().beyond = 0;
  }
  __syncthreads();
  // Bounded so that neither a denormal temperature nor a huge one makes 0 * inf.
  const float scale = fminf(fmaxf(1.0f / fmaxf(params.temperature, 1e-37f), 1e-37f), 1e37f);
  const bool greedy = params.temperature == 0.0f;
  const bool top_k = params.top_k > 0 && params.top_k < row.logits.count;
  const bool want_sums = !greedy && !top_k && (params.top_p < 1.0f || params.min_p <= 0.0f);

  const bool want_logprob = params.target >= 0 || params.logprob != 0;
  bool finite = true;
  float max = 0.0f;
  if (want_logprob) {
    max = Scan(row, 1.0f, true, &finite);
    if (!finite || max == -INFINITY) return;
    const double log_sum = max + log(Total(row.sums(), row.num_segments));
    if (threadIdx.x == 0) row.shared().log_sum = log_sum;
  }
  if (params.target >= 0) {
    const float logit = row.logits.x[params.target];
    CountBefore(row, params.target, logit);
    if (threadIdx.x != 0) return;
    sample.finite = 1;
    sample.logprob = static_cast<float>(logit - row.shared().log_sum);
    sample.rank = row.shared().beyond + 1;
    rows.samples[blockIdx.x] = sample;
    return;
  }
  const bool edited = params.num_suppressed > 0;
  __syncthreads();  // the row is about to be edited, the sums to be used anew
  if (edited && !Suppress(row, rows.logits + params.row * rows.stride, params)) return;
  if (!want_logprob || edited || (want_sums && scale != 1.0f)) max = Scan(row, scale, want_sums, &finite);
  if (!finite || max == -INFINITY) {
    if (threadIdx.x != 0) return;
    sample.no_candidate = finite && row.shared().banned != 0 ? 1 : 0;
    rows.samples[blockIdx.x] = sample;
    return;
  }
  if (greedy && Warp() != 0) return;
  const int token = greedy ? ArgMax(row, max) : Draw(row, params, {max, scale});
  if (threadIdx.x != 0) return;
  sample.token = token;
  sample.finite = 1;
  if (want_logprob) sample.logprob = static_cast<float>(row.logits.x[token] - row.shared().log_sum);
  rows.samples[blockIdx.x] = sample;
}

}  // namespace

void LaunchCudaSampleRows(const CudaSampleRows& rows, int num_samples, cudaStream_t stream) {
  if (num_samples == 0) return;
  const size_t bytes = sizeof(Shared) + 16 * static_cast<size_t>(NumSegments(rows.num_ids));
  LaunchCuda(SampleRowsKernel, dim3(static_cast<unsigned>(num_samples)), dim3(kThreads), bytes, stream, rows);
}

}  // namespace weir
