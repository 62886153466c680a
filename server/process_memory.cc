#include "server/process_memory.h"

#include <fstream>
#include <sstream>
#include <string_view>

namespace weir {
namespace {

// The sum of the lines with these names, in bytes; each is "Name:   123 kB". A name that is not there counts
// 0.
class KernelTable {
 public:
  explicit KernelTable(const std::string& path) : file_(path) {
    std::stringstream text;
    text << file_.rdbuf();
    text_ = text.str();
  }
  int64_t Bytes(std::string_view name) const {
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);) {
      if (line.size() <= name.size() || line.compare(0, name.size(), name) != 0 || line[name.size()] != ':')
        continue;
      long long kibibytes = 0;
      std::istringstream(line.substr(name.size() + 1)) >> kibibytes;
      return int64_t{kibibytes} * 1024;
    }
    return 0;
  }

 private:
  std::ifstream file_;
  std::string text_;
};

}  // namespace

ProcessMemory ReadProcessMemory(const std::string& process) {
  const KernelTable pages(process + "/smaps_rollup");
  ProcessMemory memory;
  memory.resident = pages.Bytes("Rss");
  memory.proportional = pages.Bytes("Pss");
  memory.anonymous = pages.Bytes("Anonymous") + pages.Bytes("Swap");
  if (memory.resident > 0) return memory;
  const KernelTable status(process + "/status");
  memory.resident = status.Bytes("VmRSS");
  memory.anonymous = status.Bytes("RssAnon") + status.Bytes("VmSwap");
  return memory;
}

}  // namespace weir
