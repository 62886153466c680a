// Counts what a thread allocates with operator new. Linked into programs that ask for it; sanitizers bring
// their own operator new, so there it counts nothing.
#pragma once

#include <cstdint>

namespace weir::testing {

bool CountsAllocations();

// Counts the calling thread's allocations while it lives.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;
  int64_t count() const;
};

}  // namespace weir::testing
