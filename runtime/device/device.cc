#include "runtime/device/device.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/device/device_name.h"

namespace weir {
namespace {

// "cuda" is 0, "cuda:N" is N.
std::optional<int> CudaIndex(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  name.remove_prefix(5);
  int index = -1;
  const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || last != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

}  // namespace

template <MemoryKind kKind>
Buffer<kKind>& Buffer<kKind>::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (device_ != nullptr) device_->Free(kKind, data_, bytes_);
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

template <MemoryKind kKind>
Buffer<kKind>::~Buffer() {
  if (device_ != nullptr) device_->Free(kKind, data_, bytes_);
}

template class Buffer<MemoryKind::kDevice>;
template class Buffer<MemoryKind::kHost>;

absl::Status Stream::BeginCapture() { return absl::UnimplementedError("this device records no work"); }
absl::StatusOr<std::unique_ptr<StepGraph>> Stream::EndCapture() {
  return absl::FailedPreconditionError("nothing is being recorded");
}
void Stream::Replay(const StepGraph&) { WEIR_CHECK(false); }

absl::StatusOr<std::string> ParseDeviceName(const std::string& name) {
  if (name == "cpu" || CudaIndex(name).has_value()) return name;
  return absl::InvalidArgumentError(fmt::format("unknown device '{}'; known: cpu, cuda:N", name));
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const std::string& name, int num_threads) {
  if (name == "cpu") return CreateCpuDevice(num_threads);
  const std::optional<int> index = CudaIndex(name);
  if (!index.has_value()) return ParseDeviceName(name).status();
  if (&CreateCudaDevice == nullptr)
    return absl::FailedPreconditionError(fmt::format(
        "device '{}': this build has no CUDA column; use --device cpu, or build with --preset cuda", name));
  return CreateCudaDevice(*index, num_threads);
}

}  // namespace weir
