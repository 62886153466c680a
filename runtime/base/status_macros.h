// Early return on a failed absl::Status or StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define WEIR_RETURN_IF_ERROR(expr)                                                   \
  do {                                                                               \
    if (absl::Status weir_status_ = (expr); !weir_status_.ok()) return weir_status_; \
  } while (false)

#define WEIR_CONCAT_INNER_(a, b) a##b
#define WEIR_CONCAT_(a, b) WEIR_CONCAT_INNER_(a, b)
#define WEIR_ASSIGN_OR_RETURN(lhs, expr) \
  WEIR_ASSIGN_OR_RETURN_IMPL_(WEIR_CONCAT_(weir_or_, __LINE__), lhs, expr)
#define WEIR_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return std::move(tmp).status();    \
  lhs = *std::move(tmp)
