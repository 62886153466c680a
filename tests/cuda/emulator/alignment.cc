// What the compiler calls where code that it instruments with -fsanitize=alignment uses a misaligned pointer:
// on a GPU a vector's load or store fails there. Builds with UndefinedBehaviorSanitizer have its library's
// functions.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/emulator/device_thread.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/sanitizer.h"

#if !defined(__SANITIZE_ADDRESS__)

namespace {

// As the compiler lays it out.
struct TypeMismatch {
  const char* file;
  uint32_t line, column;
  const void* type;
  unsigned char log2_alignment;
  unsigned char check;
};

[[noreturn]] void ReportMisaligned(const TypeMismatch& where, const void* pointer) {
  const char* const slash = std::strrchr(where.file, '/');
  const char* const file = slash == nullptr ? where.file : slash + 1;
  const unsigned alignment = 1u << where.log2_alignment;
  if (weir::emulator::current_thread != nullptr)
    weir::emulator::Fail(weir::emulator::ReportKind::kMisaligned, "{} is no multiple of {}, at {}:{}",
                         pointer, alignment, file, where.line);
  fmt::print(stderr, "{}:{}: misaligned address {} of something aligned to {}\n", file, where.line, pointer,
             alignment);
  std::abort();
}

}  // namespace

extern "C" {
void __ubsan_handle_type_mismatch_v1(void* where, const void* pointer) {
  ReportMisaligned(*static_cast<const TypeMismatch*>(where), pointer);
}
void __ubsan_handle_type_mismatch_v1_abort(void* where, const void* pointer) {
  ReportMisaligned(*static_cast<const TypeMismatch*>(where), pointer);
}
}

#endif
