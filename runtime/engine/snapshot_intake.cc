#include "runtime/engine/snapshot_intake.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {

SnapshotIntake::SnapshotIntake(const std::vector<SnapshotShape>* shapes, MemoryBudget* budget, int model,
                               int64_t announced_bytes)
    : shapes_(*shapes), budget_(*budget), model_(model), announced_(announced_bytes) {}

absl::Status SnapshotIntake::Claim(int64_t bytes, MemoryClaim* claim) const {
  std::optional<MemoryClaim> taken = budget_.Claim(bytes);
  if (!taken)
    return MakeError(
        absl::StatusCode::kResourceExhausted, "SNAPSHOT_MEMORY_EXHAUSTED",
        fmt::format("the import needs {} bytes until it is whole, and {} of {} are in use; delete "
                    "snapshots, retry later, or start the server with more --snapshot-memory",
                    bytes, budget_.used(), budget_.limit()),
        {{"bytes", std::to_string(bytes)}, {"capacity", std::to_string(budget_.limit())}}, absl::Seconds(1));
  *claim = *std::move(taken);
  return absl::OkStatus();
}

absl::Status SnapshotIntake::Add(std::string_view bytes) {
  if (received_ + static_cast<int64_t>(bytes.size()) > announced_)
    return SnapshotCorrupt(fmt::format("more than the {} bytes that were announced", announced_));
  received_ += static_cast<int64_t>(bytes.size());
  while (!header_done_ && !bytes.empty()) WEIR_RETURN_IF_ERROR(AddToHeader(&bytes));
  if (bytes.empty()) return absl::OkStatus();
  WEIR_RETURN_IF_ERROR(AddToBody(&bytes));
  trailer_.append(bytes);
  return absl::OkStatus();
}

absl::Status SnapshotIntake::AddToHeader(std::string_view* bytes) {
  if (header_claim_.bytes() == 0)
    WEIR_RETURN_IF_ERROR(Claim(std::min(announced_, kMaxSnapshotHeaderBytes), &header_claim_));
  const size_t count = std::min(bytes->size(), static_cast<size_t>(header_bytes_) - header_.size());
  header_.append(bytes->substr(0, count));
  bytes->remove_prefix(count);
  if (static_cast<int64_t>(header_.size()) < header_bytes_) return absl::OkStatus();
  if (header_bytes_ == kSnapshotPrefixBytes) {
    WEIR_ASSIGN_OR_RETURN(header_bytes_, ReadHeaderLength(header_));
    return absl::OkStatus();
  }
  return HeaderIsWhole();
}

absl::Status SnapshotIntake::HeaderIsWhole() {
  WEIR_ASSIGN_OR_RETURN(const ParsedHeader header, ReadSnapshotHeader(header_));
  for (size_t i = 0; model_ < 0 && i < shapes_.size(); ++i)
    if (shapes_[i].weights_fingerprint == header.fixed.weights_fingerprint &&
        shapes_[i].tokenizer_fingerprint == header.fixed.tokenizer_fingerprint)
      model_ = static_cast<int>(i);
  // Where no model made it, the first says what differs.
  const SnapshotShape& shape = shapes_[static_cast<size_t>(std::max(model_, 0))];
  WEIR_RETURN_IF_ERROR(CheckSnapshotHeader(header, shape));
  model_ = std::max(model_, 0);
  const int64_t total = shape.FileBytes(header.fixed.fed);
  if (total != announced_)
    return SnapshotCorrupt(
        fmt::format("{} bytes were announced, and a session of models/{} at position {} has {}", announced_,
                    shape.model, header.fixed.position(), total));
  image_ = std::make_shared<SnapshotImage>();
  image_->header = header.fixed;
  WEIR_RETURN_IF_ERROR(Claim(SnapshotImage::Bytes(header.fixed.body_bytes), &image_->claim));
  image_->body.reset(new char[static_cast<size_t>(header.fixed.body_bytes)]);
  sum_.Add(header_);
  header_ = std::string();
  header_claim_.Release();
  header_done_ = true;
  return absl::OkStatus();
}

absl::Status SnapshotIntake::AddToBody(std::string_view* bytes) {
  const int64_t body_bytes = image_->header.body_bytes;
  const int64_t count = std::min(static_cast<int64_t>(bytes->size()), body_bytes - body_at_);
  if (count == 0) return absl::OkStatus();
  std::memcpy(image_->body.get() + body_at_, bytes->data(), static_cast<size_t>(count));
  sum_.Add(bytes->substr(0, static_cast<size_t>(count)));
  bytes->remove_prefix(static_cast<size_t>(count));
  body_at_ += count;
  const int64_t whole = body_at_ / 8 * 8;  // slot and blocks are multiples of 8
  if (!BodyIsFinite(shapes_[static_cast<size_t>(model_)], image_->body.get(), body_checked_, whole))
    return SnapshotCorrupt("it holds numbers that are not finite");
  body_checked_ = whole;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SnapshotImage>> SnapshotIntake::Finish() {
  if (!header_done_)
    return SnapshotCorrupt(fmt::format("it is cut short: {} bytes end before its header does", received_));
  if (received_ != announced_)
    return SnapshotCorrupt(fmt::format("it is cut short: {} of {} bytes", received_, announced_));
  uint64_t checksum;
  std::memcpy(&checksum, trailer_.data(), sizeof(checksum));  // by the announced size there are 8
  if (checksum != sum_.Get()) return SnapshotCorrupt("its checksum is wrong");
  return std::move(image_);
}

}  // namespace weir
