// A server with a certificate and keys, and the command, as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/process.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AccessProcess : public ::testing::Test {
 protected:
  void SetUp() override { WriteTinyModel(model_.path(), {}); }

  std::vector<std::string> Command(std::vector<std::string> options) const {
    options.insert(options.begin(), {WEIR_SERVER_BINARY, "--model", "tiny=" + model_.path(), "--slots", "4",
                                     "--threads", "1"});
    return options;
  }
  void Start(std::vector<std::string> options) {
    options.insert(options.end(), {"--listen", "127.0.0.1:0"});
    server_ = std::make_unique<Process>(Command(std::move(options)));
    const std::string log = server_->ReadUntil("ready");
    const size_t at = log.find("127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << log;
    address_ = log.substr(at, log.find_first_not_of("0123456789", at + 10) - at);
  }
  // Output of a server that does not start, which must exit with 2.
  std::string Refusal(std::vector<std::string> options) const {
    Process process(Command(std::move(options)));
    EXPECT_EQ(process.Wait(), 2) << process.output();
    return process.output();
  }
  // Output and exit code of one command; the key in its environment.
  std::pair<std::string, int> Weir(const std::string& key, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", "WEIR_API_KEY=" + key, WEIR_CLIENT_BINARY, "--server", address_});
    Process process(arguments);
    const int code = process.Wait();
    return {process.output(), code};
  }
  // A new key; its line goes to `file`.
  static std::string NewKey(const std::string& name, const std::string& limits, std::string* file) {
    Process process({WEIR_SERVER_BINARY, "--new-api-key", name});
    EXPECT_EQ(process.Wait(), 0) << process.output();
    const std::string output = process.output();
    const size_t key = output.find("weir_"), line = output.find(name + " sha256:");
    EXPECT_NE(key, std::string::npos);
    EXPECT_NE(line, std::string::npos);
    *file += output.substr(line, output.find('\n', line) - line) + " " + limits + "\n";
    return output.substr(key, output.find('\n', key) - key);
  }

  TempDir model_, dir_;
  const Authority authority_{"authority"};
  const Identity identity_ = authority_.Issue("server", kLocalNames);
  const std::string ca_ = dir_.Write("ca.crt", authority_.cert());
  const std::string cert_ = dir_.Write("tls.crt", identity_.cert);
  const std::string key_ = dir_.Write("tls.key", identity_.key);
  std::unique_ptr<Process> server_;
  std::string address_;
};

TEST_F(AccessProcess, TlsAndKeysFromOneEndToTheOther) {
  std::string lines;
  const std::string alice = NewKey("alice", "sessions=1", &lines), bob = NewKey("bob", "", &lines);
  Start({"--tls-cert", cert_, "--tls-key", key_, "--api-keys", dir_.Write("keys", lines)});
  const auto said = [&](const std::string& key, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--ca", ca_});
    return Weir(key, std::move(arguments));
  };
  const auto generated = said(alice, {"generate", "-n", "4", "--seed", "1", "hi"});
  EXPECT_EQ(generated.second, 0) << generated.first;
  EXPECT_EQ(said(alice, {"sessions", "create", "--id", "s"}).first, "sessions/s\n");
  const auto second = said(alice, {"sessions", "create", "--id", "t"});
  EXPECT_EQ(second.second, 5);
  EXPECT_THAT(second.first, HasSubstr("SESSION_QUOTA_EXCEEDED"));
  EXPECT_THAT(said(bob, {"sessions", "get", "s"}).first, HasSubstr("SESSION_NOT_FOUND"));
  EXPECT_EQ(said(bob, {"sessions", "create", "--id", "s"}).first, "sessions/s\n");

  EXPECT_THAT(said("", {"models", "list"}), ::testing::Pair(HasSubstr("API_KEY_MISSING"), 1));
  EXPECT_THAT(said("weir_wrong", {"models", "list"}), ::testing::Pair(HasSubstr("API_KEY_INVALID"), 1));
  EXPECT_THAT(Weir(alice, {"models", "list"}), ::testing::Pair(HasSubstr("speaks TLS only"), 3));

  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->output(), AllOf(HasSubstr("2 API keys"), Not(HasSubstr(alice)), Not(HasSubstr(bob))));
}

TEST_F(AccessProcess, WrongFilesAreSaidAtTheStart) {
  const std::string none = dir_.File("none");
  EXPECT_THAT(Refusal({"--tls-cert", none, "--tls-key", key_}), HasSubstr(none));
  EXPECT_THAT(Refusal({"--tls-cert", cert_, "--tls-key", ca_}), HasSubstr(ca_));
  EXPECT_THAT(Refusal({"--api-keys", none}), HasSubstr(none));
  EXPECT_THAT(Refusal({"--api-keys", dir_.Write("keys", "alice secret\n")}),
              AllOf(HasSubstr("line 1"), Not(HasSubstr("alice secret"))));
  EXPECT_THAT(Refusal({"--listen", "0.0.0.0:0"}), HasSubstr("--tls-cert"));
}

TEST_F(AccessProcess, WhatIsOpenToTheNetworkIsWarnedOf) {
  std::string lines;
  NewKey("alice", "", &lines);
  Process plain(Command({"--listen", "0.0.0.0:0", "--insecure", "--api-keys", dir_.Write("keys", lines)}));
  EXPECT_THAT(plain.ReadUntil("ready"), HasSubstr("API keys cross the network in plaintext"));
  Process open(Command({"--listen", "0.0.0.0:0", "--tls-cert", cert_, "--tls-key", key_}));
  EXPECT_THAT(open.ReadUntil("ready"), HasSubstr("anyone who reaches 0.0.0.0:0 may use this server"));
}

}  // namespace
}  // namespace weir::testing
