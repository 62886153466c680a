// TempDir: a fresh folder for one test, removed with all it holds at the end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/base/check.h"

namespace weir::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weir_test_XXXXXX").string();
    WEIR_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Creates or replaces a file and returns its path.
  std::string Write(std::string_view name, std::string_view bytes) const {
    const std::string path = File(name);
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    WEIR_CHECK(out.good());
    return path;
  }

 private:
  std::string path_;
};

}  // namespace weir::testing
