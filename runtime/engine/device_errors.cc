#include "runtime/engine/device_errors.h"

#include <string>

#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {

absl::Status DoesNotFit(const absl::Status& status, std::string_view model, std::string_view what,
                        std::string_view remedy) {
  if (!absl::IsResourceExhausted(status)) return status;
  return MakeError(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                   fmt::format("models/{}: {}: {}; {}", model, what, std::string(status.message()), remedy));
}

absl::Status DeviceLost(const Device& device, const absl::Status& cause) {
  return MakeError(
      absl::StatusCode::kInternal, "DEVICE_LOST",
      fmt::format("the device has failed and this server ends, with all sessions: {}; start anew "
                  "on another server, or on this one when it is back",
                  std::string(cause.message())),
      {{"device", device.name()}});
}

}  // namespace weir
