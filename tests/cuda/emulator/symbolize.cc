#include "tests/cuda/emulator/symbolize.h"

#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "fmt/format.h"

namespace weir::emulator {
namespace {

// The file that an address was loaded from, and the address in it: a PIE is loaded anywhere.
struct LoadedAddress {
  uintptr_t address;
  std::string file;
  uintptr_t in_file = 0;
};

int FindSegment(dl_phdr_info* info, size_t, void* data) {
  auto* const wanted = static_cast<LoadedAddress*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const uintptr_t first = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || wanted->address < first || wanted->address >= first + segment.p_memsz)
      continue;
    wanted->file = info->dlpi_name[0] == '\0' ? fmt::format("/proc/{}/exe", getpid()) : info->dlpi_name;
    wanted->in_file = wanted->address - info->dlpi_addr;
    return 1;
  }
  return 0;
}

struct SourcePlace {
  std::string function, line;
};

bool ReadLine(FILE* file, std::string* line) {
  line->clear();
  int c = std::fgetc(file);
  for (; c != EOF && c != '\n'; c = std::fgetc(file)) *line += static_cast<char>(c);
  return c != EOF;
}

// "dir/file.cu:12 (discriminator 3)" -> "file.cu:12"
std::string ShortPlace(const std::string& place) {
  const std::string line = place.substr(0, place.find(" (disc"));
  return line.substr(line.rfind('/') + 1);
}

// Of the inlined functions at an address, which come from the innermost to the outermost: the line in the
// innermost that is not the emulator's own, the name of the outermost.
SourcePlace Ask(const void* address) {
  const std::string unknown = fmt::format("{}", address);
  LoadedAddress loaded{reinterpret_cast<uintptr_t>(address), "", 0};
  if (dl_iterate_phdr(&FindSegment, &loaded) == 0) return {unknown, unknown};
  const std::string command =
      fmt::format("addr2line -iCf -e '{}' {:#x} 2>/dev/null", loaded.file, loaded.in_file);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  if (pipe == nullptr) return {unknown, unknown};
  SourcePlace found{unknown, ""};
  std::string function, place, innermost;
  while (ReadLine(pipe.get(), &function) && ReadLine(pipe.get(), &place)) {
    found.function = function;
    if (innermost.empty()) innermost = ShortPlace(place);
    if (found.line.empty() && place.find("tests/cuda/emulator/") == std::string::npos)
      found.line = ShortPlace(place);
  }
  if (found.line.empty()) found.line = innermost.empty() ? unknown : innermost;
  return found;
}

const SourcePlace& Lookup(const void* address) {
  static std::mutex mutex;
  static std::map<const void*, SourcePlace> known;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.try_emplace(address);
  if (is_new) it->second = Ask(address);
  return it->second;
}

}  // namespace

std::string FunctionAt(const void* address) {
  std::string name = Lookup(address).function;
  // The parameters begin at the last '(' outside template arguments; "(anonymous namespace)" comes before it.
  int depth = 0;
  size_t end = name.size();
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')') ++depth;
    if (name[i] == '(' && --depth == 0) {
      end = i;
      break;
    }
  }
  name.resize(end);
  depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>') ++depth;
    if (name[i] == '<') --depth;
    if (depth == 0 && (name[i] == ':' || name[i] == ' ')) return name.substr(i + 1);
  }
  return name;
}

std::string LineAt(const void* address) { return Lookup(address).line; }
std::string LineOfCall(const void* return_address) {
  return LineAt(static_cast<const char*>(return_address) - 1);
}

}  // namespace weir::emulator
