// StateArena: all fixed state of all sequences, slot-major: a slot is one contiguous blob, so that snapshot,
// fork and zeroing are one copy each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/state/state_spec.h"
#include "runtime/tensor/tensor.h"

namespace weir {

class StateArena;

// A claim on one slot; giving it back happens once, whoever asks how often.
class StateSlot {
 public:
  StateSlot() = default;
  StateSlot(StateSlot&& other) noexcept { *this = std::move(other); }
  StateSlot& operator=(StateSlot&& other) noexcept;
  ~StateSlot() { Release(); }

  bool valid() const { return arena_ != nullptr; }
  int index() const { return index_; }
  void Release();

 private:
  friend class StateArena;
  StateSlot(StateArena* arena, int index) : arena_(arena), index_(index) {}
  StateArena* arena_ = nullptr;
  int index_ = -1;
};

// Engine thread only. Allocated once; outlives its slots.
class StateArena {
 public:
  static absl::StatusOr<StateArena> Create(const std::vector<StateSpec>& specs, int num_slots,
                                           Device& device);
  StateArena(StateArena&&) = default;
  StateArena& operator=(StateArena&&) = delete;  // slots point here

  // Bytes of one slot for these specs, padding included.
  static int64_t SlotBytes(const std::vector<StateSpec>& specs);

  int num_slots() const { return num_slots_; }
  int num_free() const { return static_cast<int>(free_.size()); }
  int64_t slot_bytes() const { return slot_bytes_; }

  // A zeroed slot, or nullopt when none is free.
  std::optional<StateSlot> Claim();
  // The same with what the last owner left, for whoever writes the whole slot before anything reads it.
  std::optional<StateSlot> ClaimToOverwrite();

  // One tensor per spec: f32 [num_slots, ...shape].
  const std::vector<TensorView>& tensors() const { return tensors_; }

  // Queued on the device's stream, like all work there: host memory is the stream's until it is synchronised.

  // `bytes` bytes of a slot's blob from `offset` on.
  void Read(const StateSlot& slot, int64_t offset, int64_t bytes, void* host);
  void Write(const StateSlot& slot, int64_t offset, int64_t bytes, const void* host);
  void Copy(const StateSlot& from, const StateSlot& to);
  void Zero(const StateSlot& slot);

 private:
  friend class StateSlot;
  StateArena() = default;
  std::byte* blob(int index) const { return buffer_.data() + index * slot_bytes_; }

  Device* device_ = nullptr;
  int num_slots_ = 0;
  int64_t slot_bytes_ = 0;
  DeviceBuffer buffer_;
  std::vector<TensorView> tensors_;
  std::vector<int> free_;  // a stack: the last one given back is the warmest
  std::vector<bool> used_;
};

}  // namespace weir
