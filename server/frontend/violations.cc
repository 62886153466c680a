#include "server/frontend/violations.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr char kViolationsUrl[] = "weir/field_violations";  // field NUL description NUL …
constexpr size_t kNamedInText = 3;

}  // namespace

void FieldViolations::Add(std::string_view field, std::string_view description) {
  const bool known =
      std::any_of(violations_.begin(), violations_.end(), [&](const auto& v) { return v.field == field; });
  if (!known) violations_.push_back({std::string(field), std::string(description)});
}

absl::Status FieldViolations::ToStatus() const {
  if (violations_.empty()) return absl::OkStatus();
  std::string text;
  for (size_t i = 0; i < std::min(kNamedInText, violations_.size()); ++i)
    text += fmt::format("{}{}: {}", i == 0 ? "" : "; ", violations_[i].field, violations_[i].description);
  if (violations_.size() > kNamedInText)
    text += fmt::format("; and {} more fields", violations_.size() - kNamedInText);
  absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, "INVALID_FIELD", text,
                                  {{"field", violations_.front().field}});
  std::string packed;
  for (const FieldViolation& violation : violations_) {
    packed.append(violation.field).push_back('\0');
    packed.append(violation.description).push_back('\0');
  }
  status.SetPayload(kViolationsUrl, absl::Cord(packed));
  return status;
}

absl::Status InvalidField(std::string_view field, std::string_view description) {
  FieldViolations violations;
  violations.Add(field, description);
  return violations.ToStatus();
}

std::vector<FieldViolation> GetFieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto packed = status.GetPayload(kViolationsUrl);
  if (!packed) return violations;
  const std::string text(*packed);
  size_t at = 0;
  while (at < text.size()) {
    FieldViolation violation;
    violation.field = text.c_str() + at;
    at += violation.field.size() + 1;
    violation.description = text.c_str() + at;
    at += violation.description.size() + 1;
    violations.push_back(std::move(violation));
  }
  return violations;
}

}  // namespace weir
