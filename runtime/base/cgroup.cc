#include "runtime/base/cgroup.h"

#include <filesystem>
#include <fstream>
#include <optional>

namespace weir {
namespace {

struct Membership {
  std::string controllers;  // "cpu,cpuacct"; empty: cgroup v2
  std::string path;         // "/a/b"; empty: the root
};

bool Lists(std::string_view controllers, std::string_view controller) {
  while (true) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == controller) return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

// A line is "4:memory:/a/b", of cgroup v2 "0::/a/b". A path out of the namespace ("/../x") cannot be seen.
std::optional<Membership> MembershipOf(std::string_view controller, const std::string& file_name) {
  std::ifstream file(file_name);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    Membership found = {line.substr(first + 1, second - first - 1), line.substr(second + 1)};
    if (!Lists(found.controllers, controller)) continue;
    if (found.path == "/" || found.path.find("/..") != std::string::npos) found.path.clear();
    return found;
  }
  return std::nullopt;
}

void AddUpwards(const std::string& mount, std::string path, std::vector<std::string>* folders) {
  while (true) {
    folders->push_back(mount + path);
    if (path.empty()) return;
    path.resize(path.find_last_of('/'));
  }
}

}  // namespace

std::vector<std::string> CgroupFolders(std::string_view controller, const CgroupPaths& paths) {
  const Membership own = MembershipOf(controller, paths.own).value_or(Membership());
  std::vector<std::string> folders;
  if (controller.empty()) {
    AddUpwards(paths.root, own.path, &folders);
    AddUpwards(paths.root + "/unified", own.path, &folders);  // beside groups of v1
    return folders;
  }
  // Controllers that share a hierarchy are mounted under the names of both; a link for each is usual only.
  std::string mount = paths.root + "/" + std::string(controller);
  std::error_code none;
  if (!own.controllers.empty() && !std::filesystem::exists(mount, none))
    mount = paths.root + "/" + own.controllers;
  AddUpwards(mount, own.path, &folders);
  return folders;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace weir
