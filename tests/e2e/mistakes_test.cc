// The commonest mistakes, made with the real programs: each row of the table in client/README.md under "When
// something goes wrong" is tried, and must be what the program says, word for word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <thread>

#include "fmt/format.h"
#include "tests/e2e/process.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

struct Row {
  std::string mistake;
  std::string message;  // with ADDRESS, PATH and BYTES for what differs
  int exit = -1;
  std::string remedy;
};

std::vector<Row> RowsOfTheReadme() {
  std::ifstream file(WEIR_SOURCE_DIR "/client/README.md");
  std::vector<Row> rows;
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) here = line == "## When something goes wrong";
    if (!here || line.rfind("| ", 0) != 0) continue;
    std::vector<std::string> cells;
    for (size_t at = 2; at < line.size();) {
      const size_t end = std::min(line.find(" |", at), line.size());
      cells.push_back(line.substr(at, end - at));
      at = end + 3;
    }
    if (cells.size() != 4 || cells[1].size() < 2 || cells[1].front() != '`') continue;  // the head
    rows.push_back({cells[0], cells[1].substr(1, cells[1].size() - 2), std::stoi(cells[2]), cells[3]});
  }
  return rows;
}

// A port that is listened on; with an answer, whoever connects gets it and is cut off.
class Listener {
 public:
  explicit Listener(const std::string& answer) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    WEIR_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(fd_, 8) == 0);
    WEIR_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
    if (answer.empty()) return;
    thread_ = std::thread([this, answer] {
      for (;;) {
        const int client = accept(fd_, nullptr, nullptr);
        if (client < 0) return;
        send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
        shutdown(client, SHUT_WR);
        char ignored[4096];
        while (recv(client, ignored, sizeof(ignored), 0) > 0) {
        }
        close(client);
      }
    });
  }
  ~Listener() {
    shutdown(fd_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(fd_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
  std::thread thread_;
};

class Mistakes : public ::testing::Test {
 protected:
  using Command = std::vector<std::string>;

  struct Attempt {
    Command command;
    std::map<std::string, std::string> names;  // ADDRESS and the like: what they are here
  };

  void SetUp() override {
    WriteTinyModel(model_.path(), {});
    Start(&plain_, {"--model", "linear=" + model_.path(), "--model", "ids=" + model_.path(), "--tokenizer",
                    "ids=none", "--slots", "1", "--max-waiting", "0"});
    Start(&guarded_, {"--model", "linear=" + model_.path(), "--tls-cert", dir_.Write("crt", identity_.cert),
                      "--tls-key", dir_.Write("key", identity_.key), "--api-keys",
                      dir_.Write("keys", "alice sha256:" + std::string(64, '0') + "\n")});
  }
  struct Running {
    std::unique_ptr<Process> process;
    std::string address;
  };
  static Command Server(Command options) {
    options.insert(options.begin(),
                   {"/usr/bin/env", "-u", "WEIR_SERVER", WEIR_SERVER_BINARY, "--threads", "1"});
    return options;
  }
  static void Start(Running* running, Command options) {
    options.insert(options.end(), {"--listen", "127.0.0.1:0"});
    running->process = std::make_unique<Process>(Server(std::move(options)));
    const std::string log = running->process->ReadUntil("ready");
    const size_t at = log.find("127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << log;
    running->address = log.substr(at, log.find_first_not_of("0123456789", at + 10) - at);
  }
  // A server that is not to start.
  Attempt Refused(Command options, std::map<std::string, std::string> names = {}) const {
    return {Server(std::move(options)), std::move(names)};
  }
  Attempt Weir(const std::string& address, Command arguments, const std::string& key = "") const {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", "WEIR_API_KEY=" + key, WEIR_CLIENT_BINARY, "--server", address});
    return {std::move(arguments), {{"ADDRESS", address}}};
  }

  std::map<std::string, std::function<Attempt()>> Attempts() {
    const std::string at = plain_.address, guarded = guarded_.address, model = "linear=" + model_.path();
    const Command trusting = {"--ca", ca_};
    return {
        {"no server runs there", [=, this] { return Weir("127.0.0.1:1", {"info"}); }},
        {"a web server has that port", [=, this] { return Weir(web_.address(), {"info"}); }},
        {"what listens there never answers",
         [=, this] {
           return Weir(silent_.address(), {"--timeout", "1", "info"});
         }},
        {"the server speaks TLS, the command does not", [=, this] { return Weir(guarded, {"info"}); }},
        {"the command speaks TLS, the server does not",
         [=, this] {
           return Weir(at, {"--tls", "info"});
         }},
        {"the server's certificate is of a private authority",
         [=, this] {
           return Weir(guarded, {"--tls", "info"});
         }},
        {"no API key",
         [=, this] {
           return Weir(guarded, {"--ca", ca_, "models"});
         }},
        {"a wrong API key",
         [=, this] {
           return Weir(guarded, {"--ca", ca_, "models"}, "weir_x");
         }},
        {"a model that is not there",
         [=, this] {
           return Weir(at, {"generate", "-m", "liner", "hi"});
         }},
        {"no model named where there are several",
         [=, this] {
           return Weir(at, {"generate", "hi"});
         }},
        {"a session that is not there",
         [=, this] {
           return Weir(at, {"generate", "-s", "tea", "hi"});
         }},
        {"text for a model without a tokenizer",
         [=, this] {
           return Weir(at, {"generate", "-m", "ids", "hi"});
         }},
        {"one session too many",
         [=, this] {
           return Weir(at, {"sessions", "create", "-m", "linear"});
         }},
        {"one request too many",
         [=, this] {
           return Weir(at, {"generate", "-m", "linear", "hi"});
         }},
        {"a prompt that is not UTF-8",
         [=, this] {
           return Weir(at, {"generate", "-m", "linear", "caf\xe9"});
         }},
        {"a prompt file that is not there",
         [=, this] {
           return Weir(at, {"generate", "-m", "linear", "-f", "no-such.txt"});
         }},
        {"a value that an option does not take",
         [=, this] {
           return Weir(at, {"generate", "-m", "linear", "-n", "many", "hi"});
         }},
        {"an option with a typing error",
         [=, this] {
           return Weir(at, {"generate", "--temprature", "0", "hi"});
         }},
        {"a command that does not exist",
         [=, this] {
           return Weir(at, {"generat", "hi"});
         }},
        {"weir-server without a model", [=, this] { return Refused({}); }},
        {"a folder that is no model",
         [=, this] {
           return Refused({"--model", dir_.path(), "--listen", "127.0.0.1:0"}, {{"PATH", dir_.path()}});
         }},
        {"a folder without a tokenizer",
         [=, this] {
           return Refused({"--model", bare_.path(), "--listen", "127.0.0.1:0"}, {{"PATH", bare_.path()}});
         }},
        {"the port is taken",
         [=, this] {
           return Refused({"--model", model, "--listen", at}, {{"ADDRESS", at}});
         }},
        {"a public address without TLS",
         [=, this] {
           return Refused({"--model", model, "--listen", "0.0.0.0:7070"});
         }},
        {"an option of weir-server with a typing error",
         [=, this] {
           return Refused({"--model", model, "--slot", "8"});
         }},
    };
  }

  const Authority authority_{"authority"};
  const Identity identity_ = authority_.Issue("server", kLocalNames);
  TempDir model_, bare_, dir_;
  const std::string ca_ = dir_.Write("ca.crt", authority_.cert());
  const Listener web_{"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"}, silent_{""};
  Running plain_, guarded_;
};

// What a program said: all of it, or the last line of a server's log without time and level.
std::string Said(std::string output) {
  while (!output.empty() && output.back() == '\n') output.pop_back();
  const size_t error = output.rfind(" error ");
  if (error != std::string::npos && output.find("\n", error) == std::string::npos) output.erase(0, error + 7);
  static const std::regex kBytes("\\([0-9]+ bytes");
  return std::regex_replace(output, kBytes, "(BYTES bytes");
}

TEST_F(Mistakes, EachRowOfTheReadmeIsWhatTheProgramSays) {
  for (const auto& entry : std::filesystem::directory_iterator(model_.path()))
    if (entry.path().filename() != "tokenizer.json")
      std::filesystem::copy(entry.path(), bare_.path() + "/" + entry.path().filename().string());
  // The only slot of the model is taken, and nobody may wait for it.
  Process holder(Weir(plain_.address, {"sessions", "create", "-m", "linear"}).command);
  ASSERT_EQ(holder.Wait(), 0) << holder.output();

  auto attempts = Attempts();
  const std::vector<Row> rows = RowsOfTheReadme();
  EXPECT_EQ(rows.size(), attempts.size());
  for (const Row& row : rows) {
    SCOPED_TRACE(row.mistake);
    const auto found = attempts.find(row.mistake);
    if (found == attempts.end()) {
      ADD_FAILURE() << "nothing here makes this mistake";
      continue;
    }
    const Attempt attempt = found->second();
    attempts.erase(found);
    Process process(attempt.command);
    EXPECT_EQ(process.Wait(), row.exit);
    std::string expected = row.message;
    for (const auto& [name, value] : attempt.names)
      for (size_t at = expected.find(name); at != std::string::npos; at = expected.find(name, at))
        expected.replace(at, name.size(), value);
    EXPECT_EQ(Said(process.output()), expected);
    EXPECT_FALSE(row.remedy.empty());
  }
  for (const auto& [mistake, attempt] : attempts) ADD_FAILURE() << "not in the README: " << mistake;
}

}  // namespace
}  // namespace weir::testing
