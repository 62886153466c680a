// Moving a sequence between its slot and host memory, in pieces, so that steps go on in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/memory_budget.h"
#include "runtime/engine/snapshot_format.h"
#include "runtime/engine/state_io.h"

namespace weir {

// A whole sequence in host memory: a snapshot of a session, or an import whose every byte was checked.
struct SnapshotImage {
  SnapshotHeader header = {};
  std::unique_ptr<char[]> body;  // [header.body_bytes]
  MemoryClaim claim;

  // What holding it costs.
  static int64_t Bytes(int64_t body_bytes) {
    return static_cast<int64_t>(sizeof(SnapshotImage)) + body_bytes;
  }
};

// The body of a sequence, front to back: slot, then the KV blocks that hold fed tokens. What lies past the
// last token of the last block may be anything in the pool; here it is zero, so that equal sequences give
// equal bytes. Engine thread only; the sequence, which does not change meanwhile, outlives this.
class BodyReader {
 public:
  BodyReader(const Sequence& sequence, StateIo& io);

  int64_t remaining() const { return total_ - offset_; }
  // The next `bytes` bytes, at most remaining(); an error is the device's.
  absl::Status Read(char* out, int64_t bytes);

 private:
  absl::Status ReadLastBlock();

  const Sequence& sequence_;
  StateIo& io_;
  int64_t total_ = 0;
  int64_t offset_ = 0;
  int64_t last_block_begin_ = 0;  // offset in the body; total_ where the last block is full
  std::vector<char> last_block_;  // empty until it is needed
};

// The other way. The sequence has its slot and enough blocks.
class BodyWriter {
 public:
  BodyWriter(const Sequence& sequence, int64_t body_bytes, StateIo& io)
      : sequence_(sequence), io_(io), total_(body_bytes) {}

  int64_t remaining() const { return total_ - offset_; }
  // `in` may be freed when this returns; an error is the device's.
  absl::Status Write(const char* in, int64_t bytes);

 private:
  const Sequence& sequence_;
  StateIo& io_;
  const int64_t total_;
  int64_t offset_ = 0;
};

// An export file, front to back. As BodyReader.
class SnapshotFileReader {
 public:
  SnapshotFileReader(const SnapshotShape& shape, const Sequence& sequence, StateIo& io);

  int64_t remaining() const { return static_cast<int64_t>(ends_.size()) - ends_at_ + body_.remaining(); }
  // At most `max_bytes`, and empty only at the end; an error is the device's.
  absl::StatusOr<std::string> Read(int64_t max_bytes);

 private:
  std::string ends_;  // header and, once the body is through, trailer
  int64_t header_bytes_ = 0;
  int64_t ends_at_ = 0;
  BodyReader body_;
  SnapshotChecksum sum_;
};

// All of a sequence but its slot and blocks.
void RestoreSequence(const SnapshotHeader& header, Sequence* sequence);

}  // namespace weir
