// Report: all that a load test found, as it is printed and written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/loadtest/capacity_figures.h"
#include "client/loadtest/distribution.h"
#include "client/loadtest/growth_figures.h"
#include "client/loadtest/state_shape.h"

namespace weir {

// Of one second of the measured time.
struct TimelineSecond {
  int64_t second = 0;   // since the warm-up's end
  int64_t tokens = 0;   // that arrived within it
  int64_t running = 0;  // turns at its end
  std::optional<double> ttft_p50_ms = {};
};

// One traffic phase. A request is a turn; it counts when the schedule has it behind the warm-up. scheduled =
// completed + empty + failed + cancelled.
struct TrafficFigures {
  std::string arrivals;  // closed, poisson or constant
  std::optional<int64_t> concurrency;
  std::optional<double> rate;  // per second
  int64_t turns = 1;           // per session; 1: without sessions
  double seconds = 0;          // measured: from the warm-up's end to the schedule's
  double drain_seconds = 0;    // from there until the last request had ended

  int64_t scheduled = 0;
  int64_t completed = 0;  // OK, with tokens
  int64_t empty = 0;      // OK, without
  int64_t failed = 0;
  int64_t cancelled = 0;                  // by the load test, at its end
  std::map<std::string, int64_t> errors;  // by reason; those of the failed, and of sessions' calls
  std::map<std::string, std::string> error_messages;  // the first of each reason

  int64_t prompt_tokens = 0;         // of all requests that count
  int64_t generated_tokens = 0;      // likewise, as counted in the streams
  int64_t all_generated_tokens = 0;  // of those of the warm-up, too
  int64_t tokens_in_time = 0;        // that arrived in the measured time, whichever request they belong to
  // Of the measured time; none where there was no such time, or nothing was due or arrived in it.
  std::optional<double> tokens_per_second;    // tokens_in_time / seconds
  std::optional<double> requests_per_second;  // completed within the measured time
  std::optional<double> goodput_per_second;   // of these, those that kept all limits

  Distribution ttft_ms;
  Distribution first_text_ms;
  Distribution itl_ms;
  Distribution tpot_ms;
  Distribution e2e_ms;
  Distribution send_lag_ms;  // of the load test itself: from the schedule to the sending
  Distribution stream_tokens_per_second;
  std::vector<TimelineSecond> timeline;

  // By how much the server's own counters went up during the phase: those of its other clients are in it.
  std::optional<int64_t> server_prompt_tokens;
  std::optional<int64_t> server_generated_tokens;
};

// Of a run in which several models get requests at the same time.
struct MixedFigures {
  TrafficFigures all;
  std::map<std::string, TrafficFigures> models;
};

// What the server says of a model, and what was found of it.
struct ModelReport {
  std::string name;
  std::string mixer;
  std::string architecture;
  std::string weight_dtype;
  int64_t parameters = 0;
  bool paged = false;
  int64_t fixed_bytes = 0;
  int64_t block_bytes = 0;
  int64_t block_tokens = 0;
  std::vector<TrafficFigures> traffic;
  std::optional<GrowthFigures> growth;
  std::vector<BreakEven> break_even;  // of constant state, against each model whose state grows
  std::optional<CapacityFigures> capacity;
};

struct ReportLimits {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2e_ms;
};

struct Report {
  std::string started;  // RFC 3339, UTC
  double seconds = 0;   // the whole run
  std::string command;
  uint64_t seed = 0;
  std::string server_address;
  std::string server_version;
  std::string server_device;
  int64_t server_compute_threads = 0;
  ReportLimits limits;
  std::vector<ModelReport> models;
  std::vector<MixedFigures> mixed;
  // Why the run did not pass, one sentence each; empty: it did.
  std::vector<std::string> failures;
};

}  // namespace weir
