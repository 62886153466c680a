#include "runtime/engine/state_io.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int64_t kStagingBytes = int64_t{1} << 20;  // as much as one piece of a copy: kCopyBytes

// slot(offset in the blob, bytes, host pointer) and blocks(offset in the blocks, bytes, host pointer) for
// what of the range lies in either.
template <class Byte, class SlotPart, class BlocksPart>
void ForEachPart(int64_t slot_bytes, int64_t offset, int64_t bytes, Byte* host, SlotPart&& slot,
                 BlocksPart&& blocks) {
  const int64_t in_slot = std::clamp<int64_t>(slot_bytes - offset, 0, bytes);
  if (in_slot > 0) slot(offset, in_slot, host);
  if (in_slot < bytes) blocks(offset + in_slot - slot_bytes, bytes - in_slot, host + in_slot);
}

}  // namespace

absl::StatusOr<HostBuffer> StateIo::AllocateStaging(Device& device) {
  if (device.backend() == Backend::kCpu) return HostBuffer();
  return device.AllocateHost(kStagingBytes);
}

absl::Status StateIo::Read(const Sequence& sequence, int64_t offset, int64_t bytes, char* out) {
  const bool staged = staging_.bytes() > 0;
  while (bytes > 0) {
    const int64_t count = staged ? std::min(bytes, staging_.bytes()) : bytes;
    char* const host = staged ? reinterpret_cast<char*>(staging_.data()) : out;
    ForEachPart(
        arena_.slot_bytes(), offset, count, host,
        [&](int64_t at, int64_t n, char* to) { arena_.Read(sequence.slot, at, n, to); },
        [&](int64_t at, int64_t n, char* to) { kv_.Read(sequence.blocks, at, n, to); });
    WEIR_RETURN_IF_ERROR(stream_.Synchronize());
    if (staged) std::memcpy(out, host, static_cast<size_t>(count));
    offset += count;
    out += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

absl::Status StateIo::Write(const Sequence& sequence, int64_t offset, int64_t bytes, const char* in) {
  const bool staged = staging_.bytes() > 0;
  while (bytes > 0) {
    const int64_t count = staged ? std::min(bytes, staging_.bytes()) : bytes;
    if (staged) std::memcpy(staging_.data(), in, static_cast<size_t>(count));
    const char* const host = staged ? reinterpret_cast<const char*>(staging_.data()) : in;
    ForEachPart(
        arena_.slot_bytes(), offset, count, host,
        [&](int64_t at, int64_t n, const char* from) { arena_.Write(sequence.slot, at, n, from); },
        [&](int64_t at, int64_t n, const char* from) { kv_.Write(sequence.blocks, at, n, from); });
    WEIR_RETURN_IF_ERROR(stream_.Synchronize());  // before the staging memory is written again
    offset += count;
    in += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

}  // namespace weir
