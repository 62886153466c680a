#include "client/loadtest/capacity_report.h"

#include <optional>

#include "client/loadtest/report_json.h"
#include "client/loadtest/text_table.h"
#include "fmt/format.h"

namespace weir {
namespace {

constexpr const char* kNotTried = "not tried";

std::string MebibytesOf(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string PartsText(const Distribution& d) {
  return fmt::format("p50 {} ms, p99 {} ms, max {} ms", PartText(d, &Distribution::p50),
                     PartText(d, &Distribution::p99), PartText(d, &Distribution::max));
}

std::string WhetherText(const std::optional<bool>& value, const char* yes, const char* no) {
  return value ? (*value ? yes : no) : kNotTried;
}

std::string OpenedText(const CapacityFigures& figures) {
  std::string text = figures.sessions ? fmt::format("{} sessions open at once", *figures.sessions)
                                      : fmt::format("sessions open at once: {}", kNotTried);
  if (figures.slots && figures.slots_free)
    text += fmt::format(" ({} slots, {} were free)", *figures.slots, *figures.slots_free);
  if (figures.arena_bytes) text += fmt::format(", {} of state", MebibytesOf(*figures.arena_bytes));
  if (figures.resident_bytes) text += fmt::format(", process {}", MebibytesOf(*figures.resident_bytes));
  return text + "\n";
}

std::string CreatedText(const CapacityFigures& figures) {
  const std::string created =
      figures.create_seconds
          ? fmt::format("created in {:.2f} s: {} each", *figures.create_seconds, PartsText(figures.create_ms))
          : fmt::format("created: {}", kNotTried);
  return fmt::format("  {}; the next one: {}\n", created, figures.refused_with.value_or(kNotTried));
}

std::string GeneratedText(const CapacityFigures& figures) {
  if (!figures.with_token || !figures.generate_seconds)
    return fmt::format("  a token in each: {}\n", kNotTried);
  std::string text = fmt::format("  {} generated a token, in {:.2f} s: first token {}", *figures.with_token,
                                 *figures.generate_seconds, PartsText(figures.first_token_ms));
  if (figures.steps && figures.step_ms)
    text += fmt::format("; {} steps of {} ms", *figures.steps, ShortNumber(*figures.step_ms));
  return text + "\n";
}

}  // namespace

nlohmann::ordered_json CapacityJson(const CapacityFigures& figures) {
  return {{"slots", OrNull(figures.slots)},
          {"slots_free", OrNull(figures.slots_free)},
          {"sessions", OrNull(figures.sessions)},
          {"arena_bytes", OrNull(figures.arena_bytes)},
          {"process_resident_bytes", OrNull(figures.resident_bytes)},
          {"refused_with", OrNull(figures.refused_with)},
          {"refused_again", OrNull(figures.refused_again)},
          {"accepted_after_delete", OrNull(figures.accepted_after_delete)},
          {"sessions_with_token", OrNull(figures.with_token)},
          {"create_seconds", OrNull(figures.create_seconds)},
          {"create_ms", DistributionJson(figures.create_ms)},
          {"generate_seconds", OrNull(figures.generate_seconds)},
          {"first_token_ms", DistributionJson(figures.first_token_ms)},
          {"steps", OrNull(figures.steps)},
          {"step_ms", OrNull(figures.step_ms)}};
}

std::string CapacityText(const std::string& model, const CapacityFigures& figures) {
  std::string text = fmt::format("{}: {}", model, OpenedText(figures));
  text += CreatedText(figures) + GeneratedText(figures);
  text += fmt::format("  one more: {}; after one was deleted: {}\n",
                      WhetherText(figures.refused_again, "refused again", "accepted"),
                      WhetherText(figures.accepted_after_delete, "accepted", "refused"));
  if (!figures.failure.empty()) text += fmt::format("  {}\n", figures.failure);
  return text;
}

}  // namespace weir
