// MemoryBudget: an exact bound on the host memory that one purpose may hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace weir {

// Bytes taken from a budget; given back once, when it ends. May outlive the budget.
class MemoryClaim {
 public:
  MemoryClaim() = default;
  MemoryClaim(MemoryClaim&& other) noexcept { *this = std::move(other); }
  MemoryClaim& operator=(MemoryClaim&& other) noexcept {
    if (this == &other) return *this;
    Release();
    used_ = std::exchange(other.used_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~MemoryClaim() { Release(); }

  int64_t bytes() const { return bytes_; }
  void Release() {
    if (used_ != nullptr) used_->fetch_sub(bytes_);
    used_ = nullptr;
    bytes_ = 0;
  }

 private:
  friend class MemoryBudget;
  MemoryClaim(std::shared_ptr<std::atomic<int64_t>> used, int64_t bytes)
      : used_(std::move(used)), bytes_(bytes) {}

  std::shared_ptr<std::atomic<int64_t>> used_;
  int64_t bytes_ = 0;
};

// Any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_->load(); }
  // nullopt when so many bytes are not left.
  std::optional<MemoryClaim> Claim(int64_t bytes) {
    int64_t used = used_->load();
    do {
      if (bytes > limit_ - used) return std::nullopt;
    } while (!used_->compare_exchange_weak(used, used + bytes));
    return MemoryClaim(used_, bytes);
  }

 private:
  const int64_t limit_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace weir
