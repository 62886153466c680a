// How the emulator says what it found.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "fmt/format.h"
#include "tests/cuda/emulator/device_interface.h"
#include "tests/cuda/emulator/emulator.h"

// "file.cu:12"
template <>
struct fmt::formatter<weir::emulator::Site> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const weir::emulator::Site& site, Context& context) const {
    const char* name = site.file_name();
    for (const char* c = name; *c != '\0'; ++c)
      if (*c == '/') name = c + 1;
    return fmt::format_to(context.out(), "{}:{}", name, site.line());
  }
};

namespace weir::emulator {

// Prefixed with the device thread that runs, if one does.
void AddReport(ReportKind kind, const std::string& text);
// Where a report is a failure nobody expects: prints and aborts. Called after each synchronising call.
void AbortIfReported();

// The device's work ends with `error`, of this and all later calls.
void SetStickyError(cudaError_t error);
cudaError_t StickyErrorOf(ReportKind kind);

// Leaves the running block; nothing on the device thread's stack is destroyed.
[[noreturn]] void AbandonBlock();

template <class... Args>
void Note(ReportKind kind, fmt::format_string<Args...> format, Args&&... args) {
  AddReport(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Ends the running block. The arguments stay on a stack that is left for good, so they must own nothing.
template <class... Args>
[[noreturn]] void Fail(ReportKind kind, fmt::format_string<Args...> format, Args&&... args) {
  static_assert((std::is_trivially_destructible_v<std::remove_cvref_t<Args>> && ...));
  AddReport(kind, fmt::format(format, std::forward<Args>(args)...));
  SetStickyError(StickyErrorOf(kind));
  AbandonBlock();
}

}  // namespace weir::emulator
