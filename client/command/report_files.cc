#include "client/command/report_files.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "client/command/exit_status.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr const char* kStdout = "-";

// Takes anything, from anybody.
bool IsNullDevice(const struct stat& info) { return S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3); }

// Through links, . and .., and a folder by its own name.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path from_root =
      std::filesystem::absolute(path, error);  // fails in a removed folder
  if (error) return path;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(from_root, error);
  return error ? path : resolved.string();
}

}  // namespace

absl::Status ReportFiles::Open(const std::string& option, const std::string& path) {
  if (path == kStdout) {
    if (on_stdout() && stdout_option_ != option)
      return UsageError(fmt::format("{} and {} both write to standard output: name a file for one of the two",
                                    stdout_option_, option));
    stdout_option_ = option;
    return absl::OkStatus();
  }
  struct stat info = {}, out = {};
  const bool exists = stat(path.c_str(), &info) == 0;
  const bool is_null = exists && IsNullDevice(info);
  if (exists && !is_null && fstat(STDOUT_FILENO, &out) == 0 && info.st_dev == out.st_dev &&
      info.st_ino == out.st_ino)
    return UsageError(fmt::format("{} {} is where standard output goes: write {} -, or name another file",
                                  option, Quoted(path), option));
  std::string resolved = Resolved(path);
  if (!is_null)
    for (const ReportPlace& other : places_)
      if (other.resolved == resolved)
        return UsageError(fmt::format("{} {} and {} {} are one file: name another for one of the two",
                                      other.option, Quoted(other.path), option, Quoted(path)));
  // What a link leads to is written, and the link stays.
  std::error_code error;
  const bool is_link = exists && std::filesystem::is_symlink(path, error);
  absl::StatusOr<OutputFile> file = OutputFile::Create(is_link ? resolved : path);
  if (!file.ok()) return UsageError(std::string(file.status().message()));
  places_.push_back({option, path, std::move(resolved), *std::move(file)});
  return absl::OkStatus();
}

absl::Status ReportFiles::Write(const std::function<std::string(const std::string& option)>& text,
                                Output* out) {
  absl::Status first;
  if (on_stdout()) out->Write(text(stdout_option_));
  for (ReportPlace& place : places_) {
    absl::Status status = place.file.Write(text(place.option));
    if (status.ok()) status = place.file.Commit();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace weir
