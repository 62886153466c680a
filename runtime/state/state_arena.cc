#include "runtime/state/state_arena.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int64_t kAlignment = 64;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

TensorView SlotTensor(std::byte* base, const StateSpec& spec, int num_slots, int64_t slot_bytes) {
  const auto& s = spec.shape;
  WEIR_CHECK(!s.empty() && s.size() <= 3);
  const DType f32 = DType::kF32;
  TensorView view = s.size() == 1   ? TensorView(base, f32, {num_slots, s[0]})
                    : s.size() == 2 ? TensorView(base, f32, {num_slots, s[0], s[1]})
                                    : TensorView(base, f32, {num_slots, s[0], s[1], s[2]});
  view.set_row_stride(slot_bytes / static_cast<int64_t>(sizeof(float)));
  return view;
}

}  // namespace

StateSlot& StateSlot::operator=(StateSlot&& other) noexcept {
  if (this != &other) {
    Release();
    arena_ = std::exchange(other.arena_, nullptr);
    index_ = std::exchange(other.index_, -1);
  }
  return *this;
}

void StateSlot::Release() {
  StateArena* arena = std::exchange(arena_, nullptr);
  if (arena == nullptr) return;
  WEIR_CHECK(arena->used_[index_]);
  arena->used_[index_] = false;
  arena->free_.push_back(index_);
  index_ = -1;
}

int64_t StateArena::SlotBytes(const std::vector<StateSpec>& specs) {
  int64_t bytes = 0;
  for (const StateSpec& spec : specs)
    bytes += AlignUp(spec.num_elements() * static_cast<int64_t>(sizeof(float)));
  return bytes;
}

absl::StatusOr<StateArena> StateArena::Create(const std::vector<StateSpec>& specs, int num_slots,
                                              Device& device) {
  WEIR_CHECK(num_slots >= 0);
  StateArena arena;
  arena.device_ = &device;
  arena.num_slots_ = num_slots;
  arena.slot_bytes_ = SlotBytes(specs);
  WEIR_ASSIGN_OR_RETURN(arena.buffer_, device.Allocate(arena.slot_bytes_ * num_slots));
  int64_t offset = 0;
  for (const StateSpec& spec : specs) {
    arena.tensors_.push_back(SlotTensor(arena.buffer_.data() + offset, spec, num_slots, arena.slot_bytes_));
    offset += AlignUp(spec.num_elements() * static_cast<int64_t>(sizeof(float)));
  }
  arena.used_.resize(num_slots, false);
  arena.free_.reserve(num_slots);
  for (int i = num_slots - 1; i >= 0; --i) arena.free_.push_back(i);
  return arena;
}

std::optional<StateSlot> StateArena::Claim() {
  std::optional<StateSlot> slot = ClaimToOverwrite();
  if (slot) Zero(*slot);  // here rather than on release: an idle slot costs nothing
  return slot;
}

std::optional<StateSlot> StateArena::ClaimToOverwrite() {
  if (free_.empty()) return std::nullopt;
  StateSlot slot(this, free_.back());
  free_.pop_back();
  used_[slot.index()] = true;
  return slot;
}

void StateArena::Read(const StateSlot& slot, int64_t offset, int64_t bytes, void* host) {
  WEIR_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= slot_bytes_);
  device_->stream().CopyToHost(host, blob(slot.index()) + offset, bytes);
}

void StateArena::Write(const StateSlot& slot, int64_t offset, int64_t bytes, const void* host) {
  WEIR_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= slot_bytes_);
  device_->stream().CopyToDevice(blob(slot.index()) + offset, host, bytes);
}

void StateArena::Copy(const StateSlot& from, const StateSlot& to) {
  device_->stream().CopyOnDevice(blob(to.index()), blob(from.index()), slot_bytes_);
}

void StateArena::Zero(const StateSlot& slot) {
  if (slot_bytes_ > 0) device_->stream().Zero(blob(slot.index()), slot_bytes_);
}

}  // namespace weir
