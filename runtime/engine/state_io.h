// StateIo: a sequence's state to and from host memory, whatever device it lies on.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/engine/sequence.h"

namespace weir {

// One per model. Engine thread only. The body of a sequence is its slot's blob, then its KV blocks in order.
class StateIo {
 public:
  // Page-locked memory for one piece, where the device's memory is not the host's, else none. Through it the
  // many small parts of KV blocks are queued without a wait for each.
  static absl::StatusOr<HostBuffer> AllocateStaging(Device& device);
  // The arguments outlive this.
  StateIo(StateArena* arena, KvPool* kv, Stream* stream, HostBuffer staging)
      : arena_(*arena), kv_(*kv), stream_(*stream), staging_(std::move(staging)) {}

  StateArena& arena() const { return arena_; }
  KvPool& kv() const { return kv_; }

  // `bytes` bytes of the body from `offset` on. The copy is done when this returns, so `out` may be read and
  // `in` freed. An error is the device's, which is then lost.
  absl::Status Read(const Sequence& sequence, int64_t offset, int64_t bytes, char* out);
  absl::Status Write(const Sequence& sequence, int64_t offset, int64_t bytes, const char* in);

 private:
  StateArena& arena_;
  KvPool& kv_;
  Stream& stream_;
  const HostBuffer staging_;
};

}  // namespace weir
