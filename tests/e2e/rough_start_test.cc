// Circumstances that a user may start the programs in: few descriptors, closed ones, an address that cannot
// be had.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "fmt/format.h"
#include "tests/e2e/server_process.h"

namespace weir::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// gRPC never accepts again once it had no descriptor for a connection.
TEST(RoughStart, AServerThatCannotAcceptAnyMoreSaysSoAndEnds) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan's check of virtual calls needs a free descriptor itself";
#endif
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  Process server({"/bin/sh", "-c",
                  "ulimit -n 64; exec " WEIR_SERVER_BINARY " --listen 127.0.0.1:0 --threads 1 --model m=" +
                      folder.path()});
  const std::string log = server.ReadUntil("ready");
  const size_t at = log.find("127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << log;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(log.substr(at + 10))));
  std::vector<int> connections;
  for (int i = 0; i < 90; ++i) {
    connections.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connect(connections.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  EXPECT_EQ(server.Wait(), 5) << server.output();
  EXPECT_THAT(server.output(), HasSubstr("ulimit -n"));
  for (const int fd : connections) close(fd);
}

// Whatever fails first, and in whatever thread: the programs say what they lack, and no signal ends them.
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // whose shadows are terabytes of addresses
TEST(RoughStart, TooLittleAddressSpaceIsNamed) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  int short_of_it = 0;
  for (int mib = 100; mib <= 1200; mib += 50) {
    Process server({"/bin/sh", "-c",
                    fmt::format("ulimit -v {}; exec " WEIR_SERVER_BINARY
                                " --listen unix:{} --threads 4 --slots 1000 --model m={}",
                                mib * 1024, folder.File("socket"), folder.path())});
    if (server.ReadUntil("ready").find("ready") != std::string::npos) server.Signal(SIGTERM);
    const int status = server.Wait();
    EXPECT_THAT(status, AnyOf(0, 3, 7, 127)) << mib << " MiB: " << server.output();
    if (status == 7) EXPECT_THAT(server.output(), HasSubstr("weir-server: ")) << mib << " MiB";
    short_of_it += status == 7 ? 1 : 0;
  }
  EXPECT_GT(short_of_it, 0);
}
#endif

class RoughClient : public ServerProcess {
 protected:
  // The command in a shell, with `redirection` behind it.
  std::pair<std::string, int> Shell(const std::string& arguments, const std::string& redirection) const {
    Process process(
        {"/bin/sh", "-c", WEIR_CLIENT_BINARY " --server " + address_ + " " + arguments + " " + redirection});
    const int code = process.Wait();
    return {process.output(), code};
  }
};

TEST_F(RoughClient, ClosedDescriptorsAreNamedAndNeverMixedUp) {
  const auto [no_output, output_code] = Shell("generate -m linear -n 5 abc", ">&-");
  EXPECT_EQ(output_code, 1);
  EXPECT_THAT(no_output, HasSubstr("Bad file descriptor"));
  const auto [no_input, input_code] = Shell("generate -m linear -n 5", "<&-");
  EXPECT_EQ(input_code, 2);
  EXPECT_THAT(no_input, HasSubstr("Bad file descriptor"));
  EXPECT_EQ(Shell("generate -m linear -n 5 abc", "2>&-").second, 0);
}

TEST_F(RoughClient, AFolderThatWasRemovedIsNoPlaceForAReport) {
  const TempDir folder;
  const std::string gone = folder.File("gone");
  Process loadtest(
      {"/bin/sh", "-c",
       fmt::format("mkdir {0} && cd {0} && rmdir {0} && exec {1} --server {2} loadtest -m linear "
                   "-n 1 --json run.json",
                   gone, WEIR_CLIENT_BINARY, address_)});
  EXPECT_EQ(loadtest.Wait(), 2);
  EXPECT_THAT(loadtest.output(), HasSubstr("'run.json'"));
}

TEST_F(RoughClient, DeleteGoesOnAfterOneThatIsGone) {
  for (const char* id : {"a", "b"})
    EXPECT_EQ(Run({"sessions", "create", "-m", "linear", "--id", id}).second, 0);
  const auto [text, code] = Run({"sessions", "delete", "nope", "a", "neither", "b"});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("nope"));
  EXPECT_THAT(text, HasSubstr("neither"));
  EXPECT_THAT(Run({"sessions", "list"}).first, Not(HasSubstr("sessions/")));
}

TEST_F(RoughClient, NoAlternativesStillMeansLogprobs) {
  const auto [text, code] =
      Run({"generate", "-m", "linear", "-n", "3", "--ignore-eos", "--top-logprobs", "0", "abc"});
  EXPECT_EQ(code, 0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\t'), 6) << text;
}

TEST_F(RoughClient, AMissingModelAndAWrongCommandAreCalledByTheirNames) {
  EXPECT_THAT(Run({"generate", "abc"}).first,
              HasSubstr("name a model with -m; this server has models/linear"));
  EXPECT_THAT(Run({"sessions", "create"}).first, HasSubstr("name a model with -m"));
  const auto [text, code] = Run({"nope", "abc"});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("'nope' is no command"));
}

TEST_F(RoughClient, TheReasonWhyAnAddressCannotBeHadIsTheSystems) {
  const TempDir folder;
  const std::string file = folder.Write("file", "text");
  const auto refusal = [&](const std::string& listen) {
    Process server({WEIR_SERVER_BINARY, "--insecure", "--listen", listen, "--model", "m=" + linear_.path()});
    EXPECT_EQ(server.Wait(), 4) << listen;
    return server.output();
  };
  EXPECT_THAT(refusal(address_), HasSubstr("another program has the port"));
  EXPECT_THAT(refusal("192.0.2.1:7070"), HasSubstr("Cannot assign requested address"));
  EXPECT_THAT(refusal("unix:" + file), HasSubstr("is no socket"));
  EXPECT_THAT(refusal("unix:" + folder.File("none/socket")), HasSubstr("No such file or directory"));
}

// It was an exception, and so an abort, to ask whether such a model has a tokenizer of its own.
TEST_F(RoughClient, AModelThatCannotBeLookedIntoIsRefusedWithAnyTokenizer) {
  const TempDir model;
  WriteTinyModel(model.path(), {});
  std::filesystem::remove(model.File("tokenizer.json"));
  std::filesystem::create_symlink("tokenizer.json", model.File("tokenizer.json"));  // to itself
  for (const std::string& tokenizer : {std::string("none"), linear_.path()}) {
    Process server({WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0", "--threads", "1", "--model",
                    "m=" + model.path(), "--tokenizer", tokenizer});
    EXPECT_EQ(server.Wait(), 3) << tokenizer;
    EXPECT_THAT(server.output(), HasSubstr("tokenizer.json: Too many levels of symbolic links")) << tokenizer;
  }
}

TEST_F(RoughClient, ASocketFileBelongsToTheServerThatListensThere) {
  const TempDir folder;
  const std::string listen = "unix:" + folder.File("socket");
  const std::vector<std::string> command = {WEIR_SERVER_BINARY,    "--listen",  listen, "--model",
                                            "m=" + linear_.path(), "--threads", "1"};
  const auto answers = [&] {
    return Process({WEIR_CLIENT_BINARY, "--server", listen, "info", "-q"}).Wait() == 0;
  };
  Process first(command);
  first.ReadUntil("ready");
  Process second(command);
  EXPECT_EQ(second.Wait(), 4);
  EXPECT_THAT(second.output(), HasSubstr("another program listens there"));
  EXPECT_TRUE(answers());
  // One that was killed leaves the file behind, which is in nobody's way.
  first.Signal(SIGKILL);
  first.Wait();
  Process third(command);
  EXPECT_THAT(third.ReadUntil("ready"), HasSubstr("ready"));
  EXPECT_TRUE(answers());
}

}  // namespace
}  // namespace weir::testing
