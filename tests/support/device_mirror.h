// DeviceMirror: twins on a device of the host memory that some views show, overlaps and gaps between rows
// included, so that in-place operations stay in place and a write between two rows is seen.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir {

class DeviceMirror {
 public:
  explicit DeviceMirror(Device& device) : device_(device) {}

  void Add(const TensorView& host);  // an empty view is nothing
  void Upload();                     // what was added, as it is now
  TensorView Twin(const TensorView& host) const;
  // What lies on the device, range by range; waits for it.
  std::vector<std::vector<std::byte>> Download();
  // Writes what Download gave over the host memory.
  void Store(const std::vector<std::vector<std::byte>>& ranges);

 private:
  struct Range {
    std::byte* begin;
    std::byte* end;
    DeviceBuffer buffer;
    std::byte* twin;  // of begin, as far from a 64-byte border as begin is
  };
  Device& device_;
  std::vector<std::pair<std::byte*, std::byte*>> added_;
  std::vector<Range> ranges_;
};

}  // namespace weir
