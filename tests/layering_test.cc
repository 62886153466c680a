// The shape of the tree: who may include whom, what stands at the root, how long a file may be.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = WEIR_SOURCE_DIR;
// In this order: each may include itself and what stands before it.
const std::vector<std::string> kRuntimeLayers = {"base", "tensor", "device", "ops", "state", "engine"};
// Module -> the other modules that it may include. Generated protobuf headers count as "proto".
const std::map<std::string, std::set<std::string>> kModules = {
    {"runtime", {}},
    {"model", {"runtime"}},
    {"server", {"model", "runtime", "proto"}},
    {"client", {"proto"}},
};

std::string FirstPart(const std::string& path) { return path.substr(0, path.find('/')); }

std::vector<fs::path> SourceFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (entry.is_regular_file() &&
        (extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh"))
      files.push_back(entry.path());
  }
  return files;
}

// Quoted include paths of a file.
std::vector<std::string> Includes(const fs::path& path) {
  std::vector<std::string> includes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("#include \"", 0) != 0) continue;
    includes.push_back(line.substr(10, line.find('"', 10) - 10));
  }
  return includes;
}

int LayerOf(const std::string& path) {  // "runtime/ops/…" -> 3
  const std::string layer = FirstPart(path.substr(path.find('/') + 1));
  const auto it = std::find(kRuntimeLayers.begin(), kRuntimeLayers.end(), layer);
  return it == kRuntimeLayers.end() ? -1 : static_cast<int>(it - kRuntimeLayers.begin());
}

// Why `file` of `module` may not include `included`, or empty.
std::string Objection(const std::string& module, const std::string& file, const std::string& included) {
  std::string target = FirstPart(included);
  if (target == "weir" || (target == "google" && included.rfind("google/rpc/", 0) == 0) ||
      included.rfind("grpc/health/", 0) == 0)
    target = "proto";
  if (module == "runtime" && target == "google") return "protobuf in runtime";
  if (target == "tests") return "product code includes tests";
  if (target == module) {
    if (module != "runtime") return "";
    const int from = LayerOf(file), to = LayerOf(included);
    if (from < 0 || to < 0) return "not one of the layers";
    return to <= from ? "" : "an upper layer";
  }
  if (target != "proto" && kModules.find(target) == kModules.end()) return "";  // a library
  if (module == "client" && included.rfind("runtime/base/", 0) == 0)
    return "";  // errors, shared with the server
  return kModules.at(module).count(target) > 0 ? "" : "another module";
}

TEST(Layering, IncludesFollowTheArrows) {
  for (const auto& [module, allowed] : kModules) {
    int files = 0;
    for (const fs::path& path : SourceFiles(kRoot / module)) {
      ++files;
      const std::string file = fs::relative(path, kRoot).string();
      for (const std::string& included : Includes(path)) {
        const std::string objection = Objection(module, file, included);
        EXPECT_TRUE(objection.empty()) << file << " includes " << included << ": " << objection;
      }
    }
    EXPECT_GT(files, 3) << module;
  }
}

TEST(Layering, TheTestItselfSeesAViolation) {
  EXPECT_NE(Objection("runtime", "runtime/base/x.h", "runtime/engine/engine.h"), "");
  EXPECT_NE(Objection("runtime", "runtime/engine/x.h", "model/decoder.h"), "");
  EXPECT_NE(Objection("runtime", "runtime/engine/x.h", "weir/v1/models.pb.h"), "");
  EXPECT_NE(Objection("model", "model/x.h", "server/server.h"), "");
  EXPECT_NE(Objection("client", "client/x.h", "runtime/engine/engine.h"), "");
  EXPECT_EQ(Objection("server", "server/x.h", "model/decoder.h"), "");
  EXPECT_EQ(Objection("runtime", "runtime/engine/x.h", "absl/status/status.h"), "");
}

// The class, struct or enum whose definition begins on this line of namespace scope, or empty.
std::string DefinedType(const std::string& line) {
  size_t at = 0;
  for (const std::string_view keyword : {"class ", "struct ", "enum class ", "enum "})
    if (at == 0 && line.rfind(keyword, 0) == 0) at = keyword.size();
  if (at == 0 || line.find(';') < line.find('{')) return "";
  std::string name = line.substr(at, line.find_first_of(":{", at) - at);
  if (name.find('<') != std::string::npos) return "";  // a specialisation
  while (!name.empty() && name.back() == ' ') name.pop_back();
  if (name.ends_with(" final")) name.resize(name.size() - 6);
  return name.substr(name.rfind(' ') + 1);  // behind attributes
}

// Two classes of one name are one class to the linker, which keeps the destructor of either.
TEST(Layering, NoTwoHeadersDefineOneType) {
  std::map<std::string, std::string> headers;
  for (const auto& [module, allowed] : kModules) {
    for (const fs::path& path : SourceFiles(kRoot / module)) {
      if (path.extension() != ".h") continue;
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        const std::string type = DefinedType(line);
        if (type.empty()) continue;
        const auto [it, is_new] = headers.emplace(type, path.string());
        EXPECT_TRUE(is_new) << type << " is defined in " << it->second << " and in " << path;
      }
    }
  }
  EXPECT_GT(headers.size(), 100u);
  EXPECT_EQ(DefinedType("class ABSL_LOCKABLE Mutex {"), "Mutex");
  EXPECT_EQ(DefinedType("class Decoder final : public LanguageModel {"), "Decoder");
  EXPECT_EQ(DefinedType("class Device;"), "");
}

// Whoever measures by the wall clock is wrong by a day when somebody sets it: runtime/base/clock.h has both
// clocks.
TEST(Layering, OneFileReadsTheWallClock) {
  const std::set<std::string> allowed = {"runtime/base/clock.cc"};
  std::set<std::string> found;
  for (const auto& [module, others] : kModules) {
    for (const fs::path& path : SourceFiles(kRoot / module)) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);)
        for (const char* clock :
             {"absl::Now(", "system_clock::now", "CLOCK_REALTIME", "gettimeofday(", "time(nullptr)"})
          if (line.find(clock) != std::string::npos) found.insert(fs::relative(path, kRoot).string());
    }
  }
  EXPECT_EQ(found, allowed);
}

TEST(Layering, NoFileIsOver600Lines) {
  for (const char* folder : {"runtime", "model", "server", "client", "tests", "deploy", "proto"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      static const std::set<std::string> kExtensions = {".h",  ".cc", ".cu",    ".cuh",
                                                        ".py", ".sh", ".proto", ".cmake"};
      if (!entry.is_regular_file() || kExtensions.count(entry.path().extension().string()) == 0) continue;
      std::ifstream file(entry.path());
      const auto lines =
          std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
      EXPECT_LE(lines, 600) << entry.path();
    }
  }
}

TEST(Layering, NothingOfWeightIsAddedAtTheRoot) {
  const std::set<std::string> allowed = {"proto",      "runtime",  "model",          "server",
                                         "client",     "deploy",   "tests",          "build",
                                         "LICENSE",    "NOTICE",   "CMakeLists.txt", "CMakePresets.json",
                                         "Dockerfile", "README.md"};
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (name.front() == '.') continue;
    EXPECT_EQ(allowed.count(name), 1u) << name;
  }
}

}  // namespace
