// OutputFile: a file that is there whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Written beside its place and renamed by Commit(); without that, nothing is left behind. What exists and is
// no regular file (a pipe, /dev/null) is written in place. Readable by its owner only.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  absl::Status Write(std::string_view bytes);
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, bool replaces, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), replaces_(replaces), fd_(fd) {}
  absl::Status Error(int error) const;

  std::string path_;
  std::string temporary_;  // empty: written in place
  bool replaces_ = false;  // an older file, which stays until Commit()
  int fd_ = -1;
};

}  // namespace weir
