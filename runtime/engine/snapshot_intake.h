// SnapshotIntake: an export file on its way in. Every byte is checked before any session sees one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/engine/snapshot.h"

namespace weir {

// Takes a file in pieces of any size and holds it until it is whole. Memory comes from a budget: never more
// than was announced, and beyond a header nothing before the announced size was found to be the one that the
// model's shapes give. One thread at a time.
class SnapshotIntake {
 public:
  // `model`: whose session it has to be; -1: of whichever made it. `shapes`, one per model, and `budget`
  // outlive this.
  SnapshotIntake(const std::vector<SnapshotShape>* shapes, MemoryBudget* budget, int model,
                 int64_t announced_bytes);

  // The first fault that these bytes show; the intake is of no use after one.
  absl::Status Add(std::string_view bytes);
  // After the last byte: the whole of it, checked.
  absl::StatusOr<std::shared_ptr<SnapshotImage>> Finish();

  // Known after the header.
  int model() const { return model_; }
  int64_t received_bytes() const { return received_; }

 private:
  absl::Status AddToHeader(std::string_view* bytes);
  absl::Status HeaderIsWhole();
  absl::Status AddToBody(std::string_view* bytes);
  absl::Status Claim(int64_t bytes, MemoryClaim* claim) const;

  const std::vector<SnapshotShape>& shapes_;
  MemoryBudget& budget_;
  int model_;
  const int64_t announced_;
  int64_t received_ = 0;
  MemoryClaim header_claim_;
  std::string header_;
  int64_t header_bytes_ = kSnapshotPrefixBytes;  // wanted; the prefix says how many
  bool header_done_ = false;
  std::shared_ptr<SnapshotImage> image_;
  int64_t body_at_ = 0;
  int64_t body_checked_ = 0;  // so many are finite; a multiple of 8
  SnapshotChecksum sum_;
  std::string trailer_;
};

}  // namespace weir
