// Changes of files are seen once, and only when they have come to rest.
#include "server/access/file_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/notification.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

TEST(FileChanges, AChangeIsToldOnceAfterOneQuietLook) {
  TempDir dir;
  const std::string path = dir.Write("f", "one");
  FileChanges changes({path});
  EXPECT_FALSE(changes.Poll());
  dir.Write("f", "two!");
  EXPECT_FALSE(changes.Poll());  // it may still be written
  EXPECT_TRUE(changes.Poll());
  EXPECT_FALSE(changes.Poll());
}

TEST(FileChanges, AGroupIsToldWhenAllOfItIsAtRest) {
  TempDir dir;
  const std::string cert = dir.Write("cert", "1"), key = dir.Write("key", "1");
  FileChanges changes({cert, key, ""});
  dir.Write("cert", "22");
  EXPECT_FALSE(changes.Poll());
  dir.Write("key", "22");
  EXPECT_FALSE(changes.Poll());
  EXPECT_TRUE(changes.Poll());
}

TEST(FileChanges, RenamedRemovedAndRelinkedFilesAreChanges) {
  TempDir dir;
  const std::string path = dir.Write("f", "same");
  FileChanges changes({path});
  fs::rename(dir.Write("new", "same"), path);
  changes.Poll();
  EXPECT_TRUE(changes.Poll());
  fs::remove(path);
  changes.Poll();
  EXPECT_TRUE(changes.Poll());
  // As Kubernetes does: a link to a folder is swapped.
  fs::create_directory(dir.File("v1"));
  fs::create_directory(dir.File("v2"));
  dir.Write("v1/f", "x");
  dir.Write("v2/f", "x");
  fs::create_directory_symlink("v1", dir.File("data"));
  FileChanges linked({dir.File("data/f")});
  fs::create_directory_symlink("v2", dir.File("swap"));
  fs::rename(dir.File("swap"), dir.File("data"));
  linked.Poll();
  EXPECT_TRUE(linked.Poll());
}

TEST(FileWatch, CallsOnItsThreadAndEndsAtOnce) {
  TempDir dir;
  testing::Notification changed;
  std::vector<FileWatch::Watched> files;
  files.push_back({FileChanges({dir.Write("f", "one")}), [&] { changed.Notify(); }});
  const FileWatch watch(std::move(files), absl::Milliseconds(1));
  dir.Write("f", "two!");
  changed.Wait();
  // Its end does not wait for the interval.
  std::vector<FileWatch::Watched> none;
  const FileWatch slow(std::move(none), absl::Hours(1));
}

}  // namespace
}  // namespace weir
