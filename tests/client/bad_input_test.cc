// The `weir` command and input that it cannot send: bytes, texts, key files; and errors as JSON.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/child.h"
#include "tests/client/command_lines.h"
#include "tests/client/scripted_server.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// An id also travels as metadata, where gRPC ends a process that puts other than printable ASCII.
TEST(CommandExit, IdsOfAnyBytesEndNoProcess) {
  ScriptedServer server;
  const TempFile file("bytes");
  const std::string ids[] = {"\xc3\xbc", "a\nb", "a\tb", "\x7f",
                             "\x1b[31m", "\xff", "a/b",  std::string(20000, 'a')};
  for (const std::string& id : ids) {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"sessions", "get", id},
                                               {"sessions", "delete", id},
                                               {"sessions", "append", id, "text"},
                                               {"sessions", "update", id, "--ttl", "1h"},
                                               {"sessions", "snapshots", id},
                                               {"sessions", "create", "--id", id},
                                               {"sessions", "import", file.path(), "--id", id},
                                               {"sessions", "fork", "s", "--id", id},
                                               {"generate", "-s", id, "text"}}) {
      const ChildResult result = RunWeir(At(server, arguments));
      const bool is_text = id != "\xff";
      EXPECT_TRUE(is_text ? result.exit <= 1 : result.exit == 2)
          << arguments[1] << ": " << result.exit << result.err;
      EXPECT_THAT(result.err, Not(HasSubstr("libprotobuf")));
      if (!is_text) EXPECT_THAT(result.err, HasSubstr("is not UTF-8: byte "));
    }
  }
}

TEST(CommandExit, TextThatIsNotUtf8IsNamedByItsField) {
  ScriptedServer server;
  const auto said = [&](std::vector<std::string> arguments) {
    const ChildResult result = RunWeir(At(server, arguments));
    EXPECT_EQ(result.exit, 2);
    return result.err;
  };
  EXPECT_THAT(said({"generate", "--stop", "\xff", "hi"}),
              HasSubstr("is not UTF-8: byte 0 is 0xff; convert it"));
  EXPECT_EQ(said({"generate", "-m", "l\xff", "hi"}),
            "weir: model: is not UTF-8: byte 8 is 0xff; convert it\n");
  EXPECT_THAT(said({"models", "get", "\xc3"}), StartsWith("weir: name: is not UTF-8: byte "));
  EXPECT_THAT(said({"sessions", "snapshot", "s", "--id", "\xff"}), HasSubstr("is not UTF-8"));
}

TEST(CommandExit, JsonErrorsAreJsonWhereTheCommandLineIsWrongToo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--json", "generate", "--nope"},
                                             {"generate", "--json", "-n", "x", "hi"},
                                             {"frobnicate", "--json"}}) {
    const ChildResult result = RunWeir(arguments);
    EXPECT_EQ(result.exit, 2);
    const nlohmann::json error = JsonLines(result.err).at(0);
    EXPECT_EQ(error["error"]["reason"], "USAGE") << result.err;
    EXPECT_THAT(error["error"]["message"].get<std::string>(), HasSubstr("see weir --help"));
  }
}

TEST(CommandExit, AKeyFileThatCannotBeReadSaysWhy) {
  ScriptedServer server;
  const TempFile empty("");
  const auto said = [&](const std::string& path) {
    const ChildResult result = RunWeir(At(server, {"--api-key-file", path, "models"}));
    EXPECT_EQ(result.exit, 2);
    return result.err;
  };
  EXPECT_THAT(said("no-such.key"), HasSubstr("No such file or directory"));
  EXPECT_THAT(said("/"), HasSubstr("Is a directory"));
  EXPECT_THAT(said(empty.path()), HasSubstr("holds no key"));
  EXPECT_THAT(said("/dev/zero"), HasSubstr("is longer than 4096 bytes"));
}

}  // namespace
}  // namespace weir
