// WEIR_CHECK: ends the process on what cannot happen; outside faults use absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>

#define WEIR_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
