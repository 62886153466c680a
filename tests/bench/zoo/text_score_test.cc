// Held-out text: how it is parted, and what weir_text_score says of a model against its decoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "model/loaded_model.h"
#include "nlohmann/json.hpp"
#include "tests/bench/zoo/text_score.h"
#include "tests/e2e/process.h"
#include "tests/support/model_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(Documents, ArePartedByLinesThatHoldOnlyTheMark) {
  EXPECT_THAT(zoo::Documents("one\n<|endoftext|>\ntwo\nlines\n\n<|endoftext|>\n\nthree\n"),
              ElementsAre("one", "two\nlines", "three"));
  EXPECT_THAT(zoo::Documents("a <|endoftext|> within a line"), ElementsAre("a <|endoftext|> within a line"));
  EXPECT_THAT(zoo::Documents("\n<|endoftext|>\n\n<|endoftext|>\n"), IsEmpty());
  EXPECT_THAT(zoo::Documents(""), IsEmpty());
}

class TextScore : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTinyModel(folder_.path(), {});
    server_ = std::make_unique<Process>(
        std::vector<std::string>{WEIR_SERVER_BINARY, "--listen", "unix:" + folder_.File("socket"), "--slots",
                                 "2", "--threads", "1", "--model", "tiny=" + folder_.path()});
    ASSERT_THAT(server_->ReadUntil("ready"), HasSubstr("ready"));
  }
  std::pair<std::string, int> Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {WEIR_TEXT_SCORE_BINARY, "--server", "unix:" + folder_.File("socket")});
    Process process(arguments);
    const int code = process.Wait();
    return {process.output(), code};
  }

  TempDir folder_;
  std::unique_ptr<Process> server_;
};

// Documents of these lengths, in ids of the tiny tokenizer: id 1 is '!', and so on.
std::vector<int32_t> Write(const std::string& path, const std::vector<int>& lengths) {
  std::mt19937 random(7);
  std::vector<int32_t> ids = {0};
  std::string text;
  for (const int length : lengths) {
    if (ids.size() > 1) text += "\n<|endoftext|>\n";
    for (int i = 0; i < length; ++i) {
      ids.push_back(1 + static_cast<int32_t>(random() % 94));
      text += static_cast<char>('!' + ids.back() - 1);
    }
    ids.push_back(0);
  }
  std::ofstream(path) << text;
  return ids;
}

TEST_F(TextScore, SaysWhatTheDecoderDoes) {
  const std::vector<int32_t> ids = Write(folder_.File("text"), {40, 30});
  const auto [text, code] =
      Run({"-m", "tiny", "--window", "16", "--reach", "32", "--stretches", "2", folder_.File("text")});
  ASSERT_EQ(code, 0) << text;
  const nlohmann::json said = nlohmann::json::parse(text)["models"][0];
  EXPECT_EQ(said["weight_dtype"], "f32");
  EXPECT_EQ(said["tokens"], 64);

  const std::unique_ptr<Device> device = CreateCpuDevice(1);
  const absl::StatusOr<LoadedModel> model = LoadModel(folder_.path(), *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ModelHarness harness(model->decoder, *device);
  // Bits of tokens (begin + from, begin + to], read from `begin` on, over their bytes: a mark has none.
  const auto bits_per_byte = [&](int64_t begin, int64_t from, int64_t to) {
    ModelHarness::Sequence sequence = harness.NewSequence(64);
    const std::vector<int32_t> read(ids.begin() + begin, ids.begin() + begin + to);
    const std::vector<std::vector<float>> logits = harness.Step({{&sequence, read}});
    double bits = 0, bytes = 0;
    for (int64_t i = from; i < to; ++i) {
      double sum = 0;
      for (int32_t id = 0; id < model->text->size(); ++id)  // what no text can have takes no share
        sum += std::exp(static_cast<double>(logits[i][id]));
      bits += std::log2(sum) - logits[i][ids[begin + i + 1]] / std::log(2.0);
      bytes += ids[begin + i + 1] == 0 ? 0 : 1;
    }
    return std::pair(bits, bytes);
  };
  double bits = 0, bytes = 0;
  for (int64_t window = 0; window < 4; ++window) {
    const auto [of_window, size] = bits_per_byte(window * 16, 0, 16);
    bits += of_window;
    bytes += size;
  }
  EXPECT_NEAR(said["bits_per_byte"], bits / bytes, 1e-4);
  ASSERT_EQ(said["by_position"].size(), 2u);  // to 16, and to 32
  for (int part = 0; part < 2; ++part) {
    const auto [first, first_bytes] = bits_per_byte(0, part * 16, part * 16 + 16);
    const auto [second, second_bytes] = bits_per_byte(32, part * 16, part * 16 + 16);
    const nlohmann::json& range = said["by_position"][static_cast<size_t>(part)];
    EXPECT_EQ(range["to"], 16 * (part + 1));
    EXPECT_NEAR(range["bits_per_byte"], (first / first_bytes + second / second_bytes) / 2, 1e-4);
    EXPECT_EQ(range["bits_per_byte"] == range["fresh"], part == 0)
        << "the first window of a stretch is one of its own";
  }
}

TEST_F(TextScore, SaysWhatIsWrong) {
  Write(folder_.File("text"), {20});
  EXPECT_THAT(Run({"-m", "tiny", folder_.File("text")}).first,
              HasSubstr("give a longer one, or a smaller --reach"));
  EXPECT_THAT(Run({"-m", "nobody", folder_.File("text")}).first, HasSubstr("nobody"));
  EXPECT_THAT(Run({"-m", "tiny", folder_.File("none")}).first, HasSubstr(folder_.File("none")));
  EXPECT_EQ(Run({"-m", "tiny"}).second, 2);
  EXPECT_EQ(Run({folder_.File("text")}).second, 2);
  EXPECT_THAT(Run({"-m", "tiny", folder_.File("text"), "other"}), Pair(HasSubstr("other"), 2));
}

TEST_F(TextScore, FindsTheServerWhereWeirDoes) {
  Write(folder_.File("text"), {20});
  Process process({"/usr/bin/env", "WEIR_SERVER=unix:" + folder_.File("socket"), WEIR_TEXT_SCORE_BINARY, "-m",
                   "nobody", folder_.File("text")});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.output(), HasSubstr("nobody"));
}

}  // namespace
}  // namespace weir::testing
