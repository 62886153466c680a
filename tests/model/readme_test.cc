// model/README.md walks through the files of one mixer: each row's files exist and hold the names that the
// row gives.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace weir {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What stands between backquotes.
std::vector<std::string> Quotes(const std::string& text) {
  std::vector<std::string> quotes;
  for (size_t begin = text.find('`'); begin != std::string::npos; begin = text.find('`', begin)) {
    const size_t end = text.find('`', begin + 1);
    if (end == std::string::npos) break;
    quotes.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return quotes;
}

TEST(ReadmeWalk, EveryRowNamesFilesThatHoldWhatItSays) {
  const std::string root = WEIR_SOURCE_DIR "/";
  std::ifstream readme(root + "model/README.md");
  ASSERT_TRUE(readme.good());
  std::string line;
  while (std::getline(readme, line) && line.find("## Adding a mixer") == std::string::npos) {
  }
  int rows = 0;
  while (std::getline(readme, line)) {
    if (!line.starts_with("| `")) continue;
    ++rows;
    const size_t second = line.find('|', 1);
    const size_t third = line.find('|', second + 1);
    const std::vector<std::string> files = Quotes(line.substr(0, second));
    ASSERT_FALSE(files.empty()) << line;
    const std::string folder = files[0].substr(0, files[0].rfind('/') + 1);
    std::string text;
    for (const std::string& file : files) {
      const std::string path = file.find('/') == std::string::npos ? folder + file : file;
      const std::string content = ReadAll(root + path);
      EXPECT_FALSE(content.empty()) << path << " is named in model/README.md";
      text += content;
    }
    // Names before the first colon are claims about these files.
    const std::string claim = line.substr(third + 1, line.find(": ", third) - third - 1);
    const std::vector<std::string> names = Quotes(claim);
    EXPECT_FALSE(names.empty()) << line;
    for (const std::string& name : names)
      EXPECT_NE(text.find(name), std::string::npos) << name << " is not in " << files[0];
  }
  EXPECT_GE(rows, 12);
}

}  // namespace
}  // namespace weir
