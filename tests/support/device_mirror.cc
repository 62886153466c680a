#include "tests/support/device_mirror.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/base/check.h"

namespace weir {
namespace {

std::pair<std::byte*, std::byte*> RangeOf(const TensorView& view) {
  const int64_t elements = (view.num_rows() - 1) * view.row_stride() + view.row_size();
  std::byte* const begin = static_cast<std::byte*>(view.raw());
  return {begin, begin + elements * static_cast<int64_t>(DTypeBytes(view.dtype()))};
}

}  // namespace

void DeviceMirror::Add(const TensorView& host) {
  if (!host.empty() && host.num_elements() > 0) added_.push_back(RangeOf(host));
}

void DeviceMirror::Upload() {
  std::sort(added_.begin(), added_.end());
  for (const auto& [begin, end] : added_) {
    if (!ranges_.empty() && begin < ranges_.back().end)
      ranges_.back().end = std::max(ranges_.back().end, end);
    else
      ranges_.push_back({begin, end, {}, nullptr});
  }
  for (Range& range : ranges_) {
    const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(range.begin) % 64);
    auto buffer = device_.Allocate(range.end - range.begin + offset);
    WEIR_CHECK(buffer.ok());
    range.buffer = *std::move(buffer);
    range.twin = range.buffer.data() + offset;
    device_.stream().CopyToDevice(range.twin, range.begin, range.end - range.begin);
  }
  WEIR_CHECK(device_.stream().Synchronize().ok());
}

TensorView DeviceMirror::Twin(const TensorView& host) const {
  if (host.empty() || host.num_elements() == 0) return host;
  std::byte* const at = static_cast<std::byte*>(host.raw());
  for (const Range& range : ranges_)
    if (at >= range.begin && at < range.end) return host.On(range.twin + (at - range.begin));
  WEIR_CHECK(false);  // not added
  return {};
}

std::vector<std::vector<std::byte>> DeviceMirror::Download() {
  std::vector<std::vector<std::byte>> out;
  for (const Range& range : ranges_) {
    out.emplace_back(range.end - range.begin);
    device_.stream().CopyToHost(out.back().data(), range.twin, range.end - range.begin);
  }
  WEIR_CHECK(device_.stream().Synchronize().ok());
  return out;
}

void DeviceMirror::Store(const std::vector<std::vector<std::byte>>& ranges) {
  WEIR_CHECK(ranges.size() == ranges_.size());
  for (size_t i = 0; i < ranges.size(); ++i)
    std::memcpy(ranges_[i].begin, ranges[i].data(), ranges[i].size());
}

}  // namespace weir
