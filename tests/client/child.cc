#include "tests/client/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/base/check.h"

extern char** environ;

namespace weir {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string TempPath(const std::string& name) {
  return (std::filesystem::temp_directory_path() / name).string();
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const Options& options) {
  folder_ = TempPath("weir_client_test_XXXXXX");
  WEIR_CHECK(mkdtemp(folder_.data()) != nullptr);
  std::ofstream(folder_ + "/in", std::ios::binary) << options.input;

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, (folder_ + "/in").c_str(), O_RDONLY, 0);
  if (options.out_fd >= 0)
    posix_spawn_file_actions_adddup2(&actions, options.out_fd, 1);
  else
    posix_spawn_file_actions_addopen(&actions, 1,
                                     (options.out_path.empty() ? folder_ + "/out" : options.out_path).c_str(),
                                     O_WRONLY | O_CREAT, 0600);
  if (options.err_fd >= 0)
    posix_spawn_file_actions_adddup2(&actions, options.err_fd, 2);
  else
    posix_spawn_file_actions_addopen(&actions, 2, (folder_ + "/err").c_str(), O_WRONLY | O_CREAT, 0600);
  // Whatever started the test may ignore SIGINT, and children inherit that.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> argv = {WEIR_COMMAND};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> env;
  const auto is_replaced = [&](const std::string& entry) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    return std::any_of(options.env.begin(), options.env.end(),
                       [&](const std::string& other) { return other.rfind(name, 0) == 0; });
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::string(*entry).rfind("WEIR_", 0) != 0 && !is_replaced(*entry)) env.emplace_back(*entry);
  env.insert(env.end(), options.env.begin(), options.env.end());
  const int error =
      posix_spawn(&pid_, WEIR_COMMAND, &actions, &attributes, Pointers(&argv).data(), Pointers(&env).data());
  WEIR_CHECK(error == 0);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
}

Child::~Child() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
}

bool Child::WaitForOutput(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    if (ReadFile(folder_ + "/out").find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void Child::Signal(int signal) { WEIR_CHECK(kill(pid_, signal) == 0); }

ChildResult Child::Wait() {
  int status = 0;
  WEIR_CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  ChildResult result;
  result.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadFile(folder_ + "/out");
  result.err = ReadFile(folder_ + "/err");
  return result;
}

ChildResult RunWeir(const std::vector<std::string>& arguments, const std::string& input) {
  Child::Options options;
  options.input = input;
  return Child(arguments, options).Wait();
}

TempFile::TempFile(const std::string& content) : path_(TempPath("weir_client_test_XXXXXX")) {
  const int fd = mkstemp(path_.data());
  WEIR_CHECK(fd >= 0 && write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  close(fd);
}

TempFile::~TempFile() { unlink(path_.c_str()); }

}  // namespace weir
