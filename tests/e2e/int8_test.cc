// int8 as a user meets it: weir-quantize, and one server that holds the folder and its saved form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/e2e/process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;

std::pair<std::string, int> Quantize(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {WEIR_QUANTIZE_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Process process(command);
  const int code = process.Wait();
  return {process.output(), code};
}

TEST(Int8Process, ASavedFolderAnswersAsTheOneThatIsConvertedWhileItLoads) {
  const TempDir folder;
  TinyModelOptions options;
  options.dtype = DType::kBF16;
  std::filesystem::create_directory(folder.File("tiny"));
  WriteTinyModel(folder.File("tiny"), options);
  const auto [said, code] = Quantize({folder.File("tiny"), folder.File("tiny-int8")});
  ASSERT_EQ(code, 0) << said;
  EXPECT_THAT(said, HasSubstr("matrices are int8"));

  const std::string socket = "unix:" + folder.File("socket");
  Process server({WEIR_SERVER_BINARY, "--listen", socket, "--model", folder.File("tiny"), "--model",
                  folder.File("tiny-int8"), "--weight-dtype", "int8", "--slots", "4", "--threads", "1"});
  EXPECT_THAT(server.ReadUntil("ready"), HasSubstr("bytes of int8 weights"));
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {WEIR_CLIENT_BINARY, "--server", socket, "--json"});
    Process process(arguments);
    EXPECT_EQ(process.Wait(), 0) << process.output();
    return process.output();
  };
  const auto score = [&](const std::string& model) { return run({"score", "-m", model, "abcabcaabbcc"}); };
  EXPECT_EQ(score("tiny"), score("tiny-int8"));
  EXPECT_THAT(run({"models"}), HasSubstr("\"int8\""));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);

  // As the folder has it: one of each.
  Process mixed({WEIR_SERVER_BINARY, "--listen", socket, "--model", folder.File("tiny"), "--model",
                 folder.File("tiny-int8"), "--slots", "4", "--threads", "1"});
  EXPECT_THAT(mixed.ReadUntil("ready"),
              AllOf(HasSubstr("bytes of int8 weights"), HasSubstr("bytes of bf16 weights")));
  EXPECT_NE(score("tiny"), score("tiny-int8"));
}

TEST(Int8Process, AFullStandardOutputIsSaidAndTheFolderIsThere) {
  const TempDir folder;
  std::filesystem::create_directory(folder.File("tiny"));
  WriteTinyModel(folder.File("tiny"), {});
  Process process({"/bin/sh", "-c", "exec \"$0\" \"$1\" \"$2\" >/dev/full", WEIR_QUANTIZE_BINARY,
                   folder.File("tiny"), folder.File("to")});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(), HasSubstr("standard output"));
  EXPECT_TRUE(std::filesystem::exists(folder.File("to/config.json")));
}

TEST(Int8Process, QuantizeSaysWhatIsWrong) {
  const TempDir folder;
  EXPECT_EQ(Quantize({}).second, 2);
  EXPECT_EQ(Quantize({"one"}).second, 2);
  EXPECT_THAT(Quantize({"--form", "x"}), Pair(HasSubstr("'--form'"), 2));
  EXPECT_THAT(Quantize({"x", ""}), Pair(HasSubstr("''"), 2));
  EXPECT_THAT(Quantize({"--help"}).first, HasSubstr("weir-quantize FROM TO"));
  EXPECT_EQ(Quantize({"--help"}).second, 0);
  const auto [missing, code] = Quantize({folder.File("none"), folder.File("to")});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(missing, AllOf(HasSubstr(folder.File("none")), HasSubstr("does not exist")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("to")));
}

}  // namespace
}  // namespace weir::testing
