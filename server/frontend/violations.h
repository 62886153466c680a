// FieldViolations: all that is wrong with a request, gathered so that a client sees everything at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/engine/sampler.h"

namespace weir {

class FieldViolations {
 public:
  // The first violation of a field is kept, later ones of the same field are dropped.
  void Add(std::string_view field, std::string_view description);

  bool empty() const { return violations_.empty(); }
  const std::vector<FieldViolation>& violations() const { return violations_; }
  // OK when empty, else INVALID_ARGUMENT that names the first fields in its text and carries all of them.
  absl::Status ToStatus() const;

 private:
  std::vector<FieldViolation> violations_;
};

absl::Status InvalidField(std::string_view field, std::string_view description);

// Those that `status` carries; empty for a status made elsewhere.
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

}  // namespace weir
