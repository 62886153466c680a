// InputFile: a regular file opened for positioned reads. Nothing is mapped, so a file that is cut while we
// read it gives an error here, where a mapping would raise SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Owns one descriptor (close-on-exec). Move-only; const methods may be called from several threads.
class InputFile {
 public:
  // NOT_FOUND when there is no such file; INVALID_ARGUMENT when it is a folder, pipe or device.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  // Fills `out` from byte `offset`. DATA_LOSS when the file got shorter, longer or was written to since
  // Open().
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const;

  uint64_t size() const { return size_; }  // bytes, as found by Open()
  const std::string& path() const { return path_; }

 private:
  InputFile() = default;
  absl::Status CheckUnchanged() const;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::timespec modified_{};
};

// The whole of a file of at most `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

}  // namespace weir
