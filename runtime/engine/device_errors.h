// What the engine says when its device cannot, or can no longer, do what it is for.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "runtime/device/device.h"

namespace weir {

// `status` of Device::Allocate, with what the memory was for and what helps ("use fewer --slots"). Passes on
// what is not RESOURCE_EXHAUSTED.
absl::Status DoesNotFit(const absl::Status& status, std::string_view model, std::string_view what,
                        std::string_view remedy);

// INTERNAL, reason DEVICE_LOST: what every turn and call gets when a Synchronize has failed with `cause`. All
// state on the device is lost with it.
absl::Status DeviceLost(const Device& device, const absl::Status& cause);

}  // namespace weir
