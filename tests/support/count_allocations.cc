#include "tests/support/count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t t_allocations = 0;
thread_local bool t_counting = false;
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEIR_OWN_NEW 0
#else
#define WEIR_OWN_NEW 1
void* operator new(size_t bytes) {
  if (t_counting) ++t_allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace weir::testing {

bool CountsAllocations() { return WEIR_OWN_NEW == 1; }

AllocationCounter::AllocationCounter() {
  t_allocations = 0;
  t_counting = true;
}
AllocationCounter::~AllocationCounter() { t_counting = false; }
int64_t AllocationCounter::count() const { return t_allocations; }

}  // namespace weir::testing
