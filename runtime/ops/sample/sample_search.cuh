// Sums, cuts and draws over a list of logits in the order of ids, by a warp or by a whole block. All sums run
// in an order that the list's length alone decides.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>

#include "runtime/device/cuda_launch.cuh"

namespace weir::sample_search {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLanes = 32;
constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kLanes;
constexpr int kGroup = 4 * kLanes;  // logits that a warp reads at once
constexpr int kGroups = 4;
constexpr int kSegment = kGroups * kGroup;  // one sum each
constexpr int kWays = 3;                    // cuts that a pass of the block tries at once

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kLanes; }
__device__ inline int Warp() { return static_cast<int>(threadIdx.x) / kLanes; }

// Every lane receives the same bits.
template <class T>
__device__ T WarpSum(T value) {
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline float WarpMax(float value) {
  for (int step = kLanes / 2; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}
// Sum over the lanes up to this one.
template <class T>
__device__ T WarpScan(T value) {
  for (int step = 1; step < kLanes; step *= 2) {
    const T other = __shfl_up_sync(kAllLanes, value, step);
    if (Lane() >= step) value += other;
  }
  return value;
}
__device__ inline int FirstLane(unsigned lanes) { return __ffs(static_cast<int>(lanes)) - 1; }
__device__ inline int LastLane(unsigned lanes) { return 31 - __clz(static_cast<int>(lanes)); }

// Integers in the order of the logits; both zeros have one. No logit is NaN.
__device__ inline uint32_t Key(float logit) {
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float LogitOf(uint32_t key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

struct Logits {
  const float* x;
  int count;
  bool aligned;  // to 16 bytes
};

// Four from `index` on, -inf beyond the end. Their place in a sum does not depend on how they are loaded.
__device__ inline float4 Load4(const Logits& logits, int index) {
  if (logits.aligned && index + 4 <= logits.count) return *reinterpret_cast<const float4*>(logits.x + index);
  float v[4];
  for (int i = 0; i < 4; ++i) v[i] = index + i < logits.count ? logits.x[index + i] : -INFINITY;
  return make_float4(v[0], v[1], v[2], v[3]);
}
// This lane's part of a group of a segment.
__device__ inline int IndexIn(int segment, int group) {
  return segment * kSegment + group * kGroup + 4 * Lane();
}
__device__ inline void LoadGroup(const Logits& logits, int segment, int group, float (&x)[4]) {
  const float4 v = Load4(logits, IndexIn(segment, group));
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

// A row's weights: exp((logit - max) / temperature), which is 1 for the arg-max.
struct Softmax {
  float max;
  float scale;  // 1 / temperature
  __device__ float operator()(float logit) const { return expf((logit - max) * scale); }
};

// What the filters have left: logits above the cut, and of those that equal it the first ones.
struct Kept {
  Softmax softmax;
  uint32_t cut = 0;
  int last_equal = INT_MAX;  // index
  float min_weight = 0.0f;

  __device__ float operator()(float logit, int index) const {
    const uint32_t key = Key(logit);
    if (key < cut || (key == cut && index > last_equal)) return 0.0f;
    const float weight = softmax(logit);
    return weight >= min_weight ? weight : 0.0f;
  }
  __device__ bool None(float largest) const {
    return Key(largest) < cut || !(softmax(largest) >= min_weight);
  }
};

// 1 for each logit that equals the cut.
struct AtCut {
  uint32_t cut;
  __device__ float operator()(float logit, int) const { return Key(logit) == cut ? 1.0f : 0.0f; }
  __device__ bool None(float largest) const { return Key(largest) < cut; }
};

template <class Weigh>
__device__ float SegmentSum(const Logits& logits, int segment, const Weigh& weigh) {
  float sum = 0.0f;
#pragma unroll 2
  for (int group = 0; group < kGroups; ++group) {
    float x[4];
    LoadGroup(logits, segment, group, x);
    for (int i = 0; i < 4; ++i) sum += weigh(x[i], IndexIn(segment, group) + i);
  }
  return WarpSum(sum);
}

__device__ inline double Total(const float* sums, int count) {
  double total = 0.0;
  for (int i = Lane(); i < count; i += kLanes) total += sums[i];
  return WarpSum(total);
}

// A segment, and the sum of those before it.
struct Place {
  int segment;
  double before;
};

// Where the running sum first exceeds `goal`, or the last segment that weighs anything.
__device__ inline Place FindSegment(const float* sums, int count, double goal) {
  Place last = {0, 0.0};
  double reached = 0.0;
  for (int first = 0; first < count; first += kLanes) {
    const int segment = first + Lane();
    const double sum = segment < count ? static_cast<double>(sums[segment]) : 0.0;
    const double through = reached + WarpScan(sum);
    const unsigned hits = __ballot_sync(kAllLanes, sum > 0.0 && through > goal);
    const unsigned some = hits != 0 ? hits : __ballot_sync(kAllLanes, sum > 0.0);
    const int lane = hits != 0 ? FirstLane(hits) : LastLane(some);
    if (some != 0) last = {first + lane, __shfl_sync(kAllLanes, through - sum, lane)};
    if (hits != 0) break;
    reached = __shfl_sync(kAllLanes, through, kLanes - 1);
  }
  return last;
}

// The same within that segment: an index, -1 where nothing weighs anything.
template <class Weigh>
__device__ int FindInSegment(const Logits& logits, Place place, const Weigh& weigh, double goal) {
  int last = -1;
  double reached = place.before;
#pragma unroll 1
  for (int group = 0; group < kGroups; ++group) {
    const int index = IndexIn(place.segment, group);
    float x[4];
    LoadGroup(logits, place.segment, group, x);
    double sum = 0.0;
    for (int i = 0; i < 4; ++i) sum += x[i] = weigh(x[i], index + i);
    const double through = reached + WarpScan(sum);
    double at = through - sum;
    int hit = -1;
    for (int i = 0; i < 4; ++i) {
      at += x[i];
      if (x[i] > 0.0f) last = index + i;
      if (x[i] > 0.0f && hit < 0 && at > goal) hit = index + i;
    }
    const unsigned hits = __ballot_sync(kAllLanes, hit >= 0);
    if (hits != 0) return __shfl_sync(kAllLanes, hit, FirstLane(hits));
    reached = __shfl_sync(kAllLanes, through, kLanes - 1);
  }
  return __reduce_max_sync(kAllLanes, last);
}

// The first index from `segment` on that holds `logit`, which must be there.
__device__ inline int FirstEqual(const Logits& logits, int segment, float logit) {
  for (; segment * kSegment < logits.count; ++segment) {
    int index = INT_MAX;
#pragma unroll 1
    for (int group = kGroups - 1; group >= 0; --group) {
      float x[4];
      LoadGroup(logits, segment, group, x);
      for (int i = 3; i >= 0; --i)
        if (x[i] == logit) index = IndexIn(segment, group) + i;
    }
    index = __reduce_min_sync(kAllLanes, index);
    if (index != INT_MAX) return index;
  }
  return 0;
}

// Where a cut lies: in [low, high). A measure is a number or a sum of weights.
struct Interval {
  uint32_t low, high;
  double above = 0.0;       // the measure of what reaches `high`; less than the target
  double reach = HUGE_VAL;  // of what reaches `low`, where it is known; not less than the target
  __device__ bool open() const { return high - low > 1; }
  // What a cut in between has shown.
  __device__ void Narrow(uint32_t cut, double measure, double target) {
    if (measure >= target) {
      low = cut;
      reach = measure;
    } else {
      high = cut;
      above = measure;
    }
  }
};

struct Measure {
  bool by_count;
  Softmax softmax;
  __device__ float operator()(float logit) const { return by_count ? 1.0f : softmax(logit); }
};

// Halves the interval for one warp, `steps` times at most. Ends, without a limit of steps, at the largest cut
// that reaches the target, or at `low` where none does.
__device__ inline void WarpNarrow(const Logits& logits, const Measure& measure, double target, int steps,
                                  Interval* interval) {
  for (; interval->open() && steps > 0; --steps) {
    const uint32_t cut = interval->low + (interval->high - interval->low) / 2;
    double sum = 0.0;
    for (int segment = 0; segment * kSegment < logits.count; ++segment) {
      float part = 0.0f;
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        if (segment * kSegment + group * kGroup >= logits.count) break;
        float x[4];
        LoadGroup(logits, segment, group, x);
        for (int i = 0; i < 4; ++i) {
          const uint32_t key = Key(x[i]);
          if (key >= cut && key < interval->high) part += measure(x[i]);
        }
      }
      sum += part;
    }
    interval->Narrow(cut, interval->above + WarpSum(sum), target);
  }
}

// The same by a whole block, eight parts at a time. segment_max: of each segment. partial: shared.
__device__ inline void BlockNarrow(const Logits& logits, const float* segment_max, const Measure& measure,
                                   double target, double (*partial)[kWarps], Interval* interval) {
  while (interval->open()) {
    const uint64_t range = interval->high - interval->low;
    uint32_t cuts[kWays];
    for (int j = 0; j < kWays; ++j) {
      const auto offset = static_cast<uint32_t>((range * (j + 1) + kWays) / (kWays + 1));
      cuts[j] = min(interval->low + offset, interval->high - 1);
    }
    double sums[kWays] = {};
    for (int segment = Warp(); segment * kSegment < logits.count; segment += kWarps) {
      if (Key(segment_max[segment]) < cuts[0]) continue;
      float part[kWays] = {};
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        float x[4];
        LoadGroup(logits, segment, group, x);
        for (int i = 0; i < 4; ++i) {
          const uint32_t key = Key(x[i]);
          if (key < cuts[0] || key >= interval->high) continue;
          const float weight = measure(x[i]);
          for (int j = 0; j < kWays; ++j) part[j] += key >= cuts[j] ? weight : 0.0f;
        }
      }
      for (int j = 0; j < kWays; ++j) sums[j] += part[j];
    }
    for (int j = 0; j < kWays; ++j) {
      const double sum = WarpSum(sums[j]);
      if (Lane() == 0) partial[j][Warp()] = sum;
    }
    __syncthreads();
    // From the lowest cut up, for as long as the target is reached.
    const double above = interval->above;
#pragma unroll
    for (int j = 0; j < kWays; ++j) {
      const double sum = above + WarpSum(Lane() < kWarps ? partial[j][Lane()] : 0.0);
      interval->Narrow(cuts[j], sum, target);
      if (sum < target) break;
    }
    __syncthreads();
  }
}

}  // namespace weir::sample_search
