#include "server/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "runtime/base/clock.h"
#include "server/metrics/process_use.h"

namespace weir {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Labels = std::vector<ClientMetric::Label>;

// One family: its samples are added with Set or Observe.
class Family {
 public:
  Family(std::string name, MetricType type, std::string help) {
    family_.name = std::move(name);
    family_.type = type;
    family_.help = std::move(help);
  }
  void Set(Labels labels, double value) {
    ClientMetric& metric = family_.metric.emplace_back();
    metric.label = std::move(labels);
    if (family_.type == MetricType::Counter)
      metric.counter.value = value;
    else
      metric.gauge.value = value;
  }
  void Set(Labels labels, int64_t value) { Set(std::move(labels), static_cast<double>(value)); }
  void Set(Labels labels, const EventCounter& counter) { Set(std::move(labels), counter.value()); }
  void Observe(Labels labels, const Histogram& histogram) {
    const HistogramReading reading = histogram.Read();
    ClientMetric& metric = family_.metric.emplace_back();
    metric.label = std::move(labels);
    uint64_t below = 0;
    for (size_t i = 0; i < reading.counts.size(); ++i) {
      below += static_cast<uint64_t>(reading.counts[i]);
      const double bound =
          i < reading.bounds.size() ? reading.bounds[i] : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({below, bound});
    }
    metric.histogram.sample_count = below;
    metric.histogram.sample_sum = reading.sum;
  }
  MetricFamily Take() { return std::move(family_); }

 private:
  MetricFamily family_;
};

// One model: what the engine published after its last step, and what it counts as it happens.
struct ModelView {
  std::string name;
  size_t index = 0;
  RunnerStats stats;
  const RunnerMetrics* metrics = nullptr;
};

class Collector {
 public:
  explicit Collector(const MetricsView& view) : view_(view) {
    if (view.frontend == nullptr) return;
    const Engine& engine = view.frontend->engine();
    const std::vector<RunnerStats> stats = engine.Stats();
    for (size_t i = 0; i < stats.size(); ++i)
      models_.push_back({engine.models()[i].name, i, stats[i], &engine.metrics(static_cast<int>(i))});
  }

  std::vector<MetricFamily> Collect() {
    AddRequests();
    AddTokens();
    AddTimes();
    AddState();
    AddServer();
    AddProcess();
    return std::move(families_);
  }

 private:
  // `add` adds the samples of one model.
  template <class Add>
  void EachModel(Family family, Add add) {
    for (const ModelView& model : models_) add(model, &family);
    families_.push_back(family.Take());
  }
  static Labels Of(const ModelView& model, std::initializer_list<ClientMetric::Label> more = {}) {
    Labels labels = {{"model", model.name}};
    labels.insert(labels.end(), more);
    return labels;
  }
  // A family with one value a model.
  template <class Value>
  void Add(MetricType type, const char* name, const char* help, Value value) {
    EachModel(Family(name, type, help),
              [&](const ModelView& model, Family* family) { family->Set(Of(model), value(model)); });
  }
  void AddHistogram(const char* name, const char* help, Histogram RunnerMetrics::*histogram) {
    EachModel(Family(name, MetricType::Histogram, help), [&](const ModelView& model, Family* family) {
      family->Observe(Of(model), model.metrics->*histogram);
    });
  }
  void AddUsedAndFree(const char* name, const char* help, int64_t RunnerStats::*total,
                      int64_t RunnerStats::*free) {
    EachModel(Family(name, MetricType::Gauge, help), [&](const ModelView& model, Family* family) {
      family->Set(Of(model, {{"state", "used"}}), model.stats.*total - model.stats.*free);
      family->Set(Of(model, {{"state", "free"}}), model.stats.*free);
    });
  }
  template <class Value>
  void AddOne(MetricType type, const char* name, const char* help, Value value) {
    Family family(name, type, help);
    family.Set({}, value);
    families_.push_back(family.Take());
  }

  // Before a turn reaches the engine its client may end it: then it began and ended at once.
  int64_t GivenUp(const ModelView& model, TurnEnding end) const {
    const FrontendMetrics& metrics = view_.frontend->metrics();
    if (end == TurnEnding::kCancelled) return metrics.cancelled(model.index);
    return end == TurnEnding::kDeadlineExceeded ? metrics.expired(model.index) : 0;
  }
  int64_t Rejected(size_t reason) const {
    int64_t count = view_.at_the_gate->count(reason);
    if (view_.frontend == nullptr) return count;
    count += view_.frontend->engine().metrics().rejections.count(reason);
    for (const ModelView& model : models_) count += model.metrics->rejections.count(reason);
    return count;
  }

  void AddRequests() {
    Add(MetricType::Gauge, "weir_requests_running", "Turns that the model computes now.",
        [](const ModelView& model) { return model.stats.running; });
    Add(MetricType::Gauge, "weir_requests_waiting", "Turns that stand in line for a place.",
        [](const ModelView& model) { return model.stats.waiting; });
    // Ends before starts, so that a reader never sees more ends than starts.
    Family ended("weir_requests_total", MetricType::Counter,
                 "Turns (Generate, Append, Score) that have ended, by how.");
    for (const ModelView& model : models_) {
      for (int i = 0; i < kNumTurnEndings; ++i) {
        const auto end = static_cast<TurnEnding>(i);
        const int64_t count = model.metrics->ended[static_cast<size_t>(i)].value() + GivenUp(model, end);
        ended.Set(Of(model, {{"finish_reason", std::string(TurnEndingName(end))}}), count);
      }
    }
    Add(MetricType::Counter, "weir_requests_started_total",
        "Turns that were taken, and not refused; each is in weir_requests_total once it has ended.",
        [this](const ModelView& model) {
          return model.metrics->started.value() + GivenUp(model, TurnEnding::kCancelled) +
                 GivenUp(model, TurnEnding::kDeadlineExceeded);
        });
    families_.push_back(ended.Take());
    Family rejected(
        "weir_admission_rejected_total", MetricType::Counter,
        "Calls that were refused before they had any effect: turns for any reason, others for want of "
        "room or access, or in a drain. The reason is that of the error, or the name of its code.");
    for (size_t i = 0; i < Rejections::kReasons.size(); ++i)
      rejected.Set({{"reason", std::string(Rejections::kReasons[i])}}, Rejected(i));
    families_.push_back(rejected.Take());
  }

  void AddTokens() {
    Add(MetricType::Counter, "weir_prompt_tokens_total", "Tokens in the prompts of admitted turns.",
        [](const ModelView& model) { return model.metrics->prompt_tokens.value(); });
    Add(MetricType::Counter, "weir_prefilled_tokens_total",
        "Tokens that went through the model ahead of a turn's output, but for the last of them, which is "
        "decoded: its prompt, and the last token of the turn before, which had not gone through it yet.",
        [](const ModelView& model) { return model.metrics->prefilled_tokens.value(); });
    Add(MetricType::Counter, "weir_generated_tokens_total", "Tokens generated, whoever read them.",
        [](const ModelView& model) { return model.metrics->generated_tokens.value(); });
    Add(MetricType::Counter, "weir_reused_tokens_total",
        "Tokens that turns found in the state of their session, and that were not computed again.",
        [](const ModelView& model) { return model.metrics->reused_tokens.value(); });
    EachModel(Family("weir_reuse_missed_tokens_total", MetricType::Counter,
                     "Prompt tokens that came with no state to go on from."),
              [](const ModelView& model, Family* family) {
                family->Set(Of(model, {{"reason", "no_session"}}), model.metrics->missed_without_session);
                family->Set(Of(model, {{"reason", "new_session"}}), model.metrics->missed_in_new_session);
              });
    Add(MetricType::Counter, "weir_state_nonfinite_total",
        "Rows of logits that were not finite; each failed its turn alone.",
        [](const ModelView& model) { return model.metrics->nonfinite_rows.value(); });
  }

  void AddTimes() {
    AddHistogram("weir_time_to_first_token_seconds",
                 "From the arrival of a request to its first token; one for each turn that got a token.",
                 &RunnerMetrics::time_to_first_token);
    AddHistogram("weir_inter_token_latency_seconds", "Between a token and the one before it.",
                 &RunnerMetrics::inter_token_latency);
    AddHistogram("weir_time_per_output_token_seconds",
                 "Of a turn of two tokens or more: the mean time between two.",
                 &RunnerMetrics::time_per_output_token);
    AddHistogram(
        "weir_request_duration_seconds",
        "From the arrival of a request to its end, however it ended; those that were taken by the engine.",
        &RunnerMetrics::request_duration);
    AddHistogram("weir_step_duration_seconds", "One step of the model, with sampling.",
                 &RunnerMetrics::step_duration);
    AddHistogram("weir_step_tokens", "Tokens of one step, prompts and decoding together.",
                 &RunnerMetrics::step_tokens);
    Family snapshot("weir_snapshot_duration_seconds", MetricType::Histogram,
                    "Copying a session's state into a snapshot, between steps.");
    Family restore("weir_restore_duration_seconds", MetricType::Histogram,
                   "Copying a state back into a slot: rollbacks and imports.");
    Family tokenization("weir_tokenization_duration_seconds", MetricType::Histogram,
                        "Tokenizing the text of one request.");
    if (view_.frontend != nullptr) {
      snapshot.Observe({}, view_.frontend->engine().metrics().snapshot_duration);
      restore.Observe({}, view_.frontend->engine().metrics().restore_duration);
      tokenization.Observe({}, view_.frontend->metrics().tokenization());
    }
    for (Family* family : {&snapshot, &restore, &tokenization}) families_.push_back(family->Take());
  }

  void AddState() {
    EachModel(Family("weir_sessions", MetricType::Gauge, "Sessions, by where their state lies."),
              [](const ModelView& model, Family* family) {
                family->Set(Of(model, {{"tier", "resident"}}), model.stats.sessions);
              });
    Add(MetricType::Gauge, "weir_session_state_bytes",
        "Bytes of state that a session holds: the mean over all; while there is none, what an empty one "
        "takes.",
        [](const ModelView& model) {
          const RunnerStats& stats = model.stats;
          return stats.sessions == 0
                     ? static_cast<double>(stats.slot_bytes)
                     : static_cast<double>(stats.session_state_bytes) / static_cast<double>(stats.sessions);
        });
    Add(MetricType::Gauge, "weir_session_tokens", "Tokens that the sessions hold, all together.",
        [](const ModelView& model) { return model.stats.session_positions; });
    Add(MetricType::Gauge, "weir_session_tokens_max", "Tokens that the furthest session holds.",
        [](const ModelView& model) { return model.stats.max_session_position; });
    AddUsedAndFree("weir_state_slots", "Places for sequences with state: sessions, and turns without one.",
                   &RunnerStats::slots_total, &RunnerStats::slots_free);
    AddUsedAndFree("weir_kv_blocks", "Blocks of the paged cache; none where states are fixed.",
                   &RunnerStats::kv_blocks_total, &RunnerStats::kv_blocks_free);
    Add(MetricType::Gauge, "weir_state_pool_bytes", "Bytes of all slots and blocks, used or not.",
        [](const ModelView& model) {
          const RunnerStats& stats = model.stats;
          return stats.slots_total * stats.slot_bytes + stats.kv_blocks_total * stats.kv_block_bytes;
        });
    Add(MetricType::Gauge, "weir_cache_utilization_ratio",
        "Share of the slots, or of the cache's blocks where that is more, that is in use: for gateways.",
        [](const ModelView& model) {
          const auto share = [](int64_t total, int64_t free) {
            return total > 0 ? static_cast<double>(total - free) / static_cast<double>(total) : 0.0;
          };
          return std::max(share(model.stats.slots_total, model.stats.slots_free),
                          share(model.stats.kv_blocks_total, model.stats.kv_blocks_free));
        });
  }

  void AddServer() {
    Family memory("weir_snapshot_memory_bytes", MetricType::Gauge,
                  "Memory for snapshots, and for imports until they are whole.");
    Family device("weir_device_allocated_bytes", MetricType::Gauge,
                  "What the server has allocated on its device; it does not change once the server serves.");
    Labels build = {{"version", WEIR_VERSION}};
    if (view_.frontend != nullptr) {
      Engine& engine = view_.frontend->engine();
      const int64_t used = engine.snapshot_budget().used();
      memory.Set({{"state", "used"}}, used);
      memory.Set({{"state", "free"}}, engine.snapshot_budget().limit() - used);
      device.Set({}, engine.device().allocated_bytes());
      build.push_back({"device", engine.device().name()});
    }
    families_.push_back(memory.Take());
    families_.push_back(device.Take());
    AddOne(MetricType::Gauge, "weir_streams_open",
           "Generate, Export and Import calls that are not done, to the last byte.", view_.live_streams);
    AddOne(MetricType::Gauge, "weir_serving",
           "1 while health is SERVING: not while models load, nor in a drain.", int64_t{view_.serving});
    AddOne(MetricType::Counter, "weir_log_lines_dropped_total",
           "Lines of the log that were thrown away, as they came faster than they could be written.",
           view_.dropped_log_lines);
    Family info("weir_build_info", MetricType::Gauge, "Always 1.");
    info.Set(std::move(build), int64_t{1});
    families_.push_back(info.Take());
  }

  void AddProcess() {
    const ProcessUse use = ReadProcessUse();
    AddOne(MetricType::Gauge, "process_resident_memory_bytes", "Resident memory size in bytes.",
           use.resident_bytes);
    AddOne(MetricType::Gauge, "process_virtual_memory_bytes", "Virtual memory size in bytes.",
           use.virtual_bytes);
    AddOne(MetricType::Counter, "process_cpu_seconds_total", "User and system CPU time in seconds.",
           use.cpu_seconds);
    AddOne(MetricType::Gauge, "process_open_fds", "Open file descriptors.", use.open_descriptors);
    AddOne(MetricType::Gauge, "process_max_fds", "Most file descriptors that may be open.",
           use.max_descriptors);
    AddOne(MetricType::Gauge, "process_start_time_seconds", "Start of the server, in seconds since 1970.",
           absl::ToDoubleSeconds(ToWallTime(view_.start_time) - absl::UnixEpoch()));
  }

  const MetricsView& view_;
  std::vector<ModelView> models_;
  std::vector<MetricFamily> families_;
};

}  // namespace

std::string MetricsText(const MetricsView& view) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collector(view).Collect());
  return out.str();
}

}  // namespace weir
