// Associative recall: the problems, and what weir_recall_score says of the zoo's models against their
// decoders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "model/loaded_model.h"
#include "nlohmann/json.hpp"
#include "tests/bench/zoo/recall_score_problems.h"
#include "tests/e2e/process.h"
#include "tests/support/model_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using recall::MakeProblem;
using recall::ValuePosition;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Folder(const std::string& name) { return WEIR_SOURCE_DIR "/model/zoo/recall/" + name; }

TEST(RecallProblems, AskForEveryKeyOnceWithItsValueBehindIt) {
  for (const int pairs : {1, 4, 64, 256}) {
    int moved = 0;
    for (uint32_t index = 0; index < 20; ++index) {
      const std::vector<int32_t> ids = MakeProblem(pairs, 3, index);
      ASSERT_EQ(ids.size(), 4u * pairs);
      std::map<int32_t, int32_t> values;
      std::set<int32_t> asked;
      for (int i = 0; i < pairs; ++i) {
        const int32_t key = ids[2 * i], value = ids[2 * i + 1];
        EXPECT_TRUE(key >= 1 && key < 512 && value >= 512 && value < 1024) << key << " " << value;
        EXPECT_TRUE(values.emplace(key, value).second) << "key " << key << " twice";
      }
      for (int query = 0; query < pairs; ++query) {
        const int at = ValuePosition(pairs, query);
        EXPECT_EQ(ids[at], values.at(ids[at - 1]));
        asked.insert(ids[at - 1]);
        moved += ids[at - 1] != ids[2 * query] ? 1 : 0;
      }
      EXPECT_EQ(asked.size(), static_cast<size_t>(pairs));
    }
    // In random order one key on average stays in its place.
    if (pairs > 1) EXPECT_GT(moved, 20 * (pairs - 2)) << pairs;
  }
}

TEST(RecallProblems, AreFunctionsOfTheirArguments) {
  // Computed by another implementation of std::mt19937_64 and std::seed_seq.
  EXPECT_THAT(MakeProblem(4, 1, 0), ElementsAre(491, 1017, 213, 942, 355, 752, 175, 1009, 491, 1017, 175,
                                                1009, 355, 752, 213, 942));
  EXPECT_THAT(MakeProblem(4, 1, 1),
              ElementsAre(487, 756, 80, 807, 76, 581, 203, 975, 76, 581, 487, 756, 80, 807, 203, 975));
  EXPECT_THAT(MakeProblem(4, (uint64_t{7} << 32) + 1, 0),
              ElementsAre(24, 828, 414, 568, 485, 988, 404, 775, 414, 568, 485, 988, 24, 828, 404, 775));
}

struct Recall {
  int right = 0;
  int queries = 0;
  double bits = 0;  // sum
};

// By the decoder itself, a whole problem a step, in double precision behind its logits.
Recall Direct(const std::string& folder, int pairs, int queries, uint64_t seed) {
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  LoadOptions ids_only;
  ids_only.ids_only = true;
  const absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, ids_only);
  WEIR_CHECK(model.ok());
  ModelHarness harness(model->decoder, *device);
  Recall recall;
  for (uint32_t index = 0; recall.queries < queries; ++index) {
    const std::vector<int32_t> ids = MakeProblem(pairs, seed, index);
    ModelHarness::Sequence sequence = harness.NewSequence();
    const std::vector<std::vector<float>> logits = harness.Step({{&sequence, ids}});
    for (int query = 0; query < pairs; ++query) {
      const int at = ValuePosition(pairs, query);
      const std::vector<float>& row = logits[at - 1];
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      recall.bits -= (row[ids[at]] - std::log(sum)) / std::log(2.0);
      recall.right += ArgMax(row) == ids[at] ? 1 : 0;
      ++recall.queries;
    }
  }
  return recall;
}

class RecallScore : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTinyModel(tiny_.path(), {});
    server_ = std::make_unique<Process>(std::vector<std::string>{
        WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0", "--tokenizer", "none", "--slots", "4", "--kv-memory",
        "16MiB", "--model", "linear=" + Folder("linear"), "--model", "softmax=" + Folder("softmax"),
        "--model", "tiny=" + tiny_.path()});
    const std::string log = server_->ReadUntil("ready");
    const size_t at = log.find("127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << log;
    address_ = log.substr(at, log.find_first_not_of("0123456789", at + 10) - at);
  }
  // Output, both streams, and exit code.
  std::pair<std::string, int> Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {WEIR_RECALL_BINARY, "--server", address_});
    Process process(arguments);
    const int code = process.Wait();
    return {process.output(), code};
  }

  TempDir tiny_;
  std::unique_ptr<Process> server_;
  std::string address_;
};

TEST_F(RecallScore, SaysWhatTheDecodersDo) {
  const auto [text, code] = Run(
      {"--model", "linear", "softmax", "--pairs", "256,4,64", "--queries", "512", "--seed", "5", "--json"});
  ASSERT_EQ(code, 0) << text;
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["pairs"], nlohmann::json({4, 64, 256}));
  EXPECT_TRUE(json["queries"] == 512 && json["seed"] == 5) << text;
  ASSERT_EQ(json["models"].size(), 2u);
  const nlohmann::json &linear = json["models"][0], &softmax = json["models"][1];
  EXPECT_TRUE(linear["name"] == "linear" && linear["mixer"] == "linear_attention") << text;
  EXPECT_TRUE(softmax["name"] == "softmax" && softmax["mixer"] == "softmax") << text;
  for (const nlohmann::json& model : json["models"]) {
    EXPECT_TRUE(model["parameters"] > 150'000 && model["parameters"] < 170'000) << text;
    for (const int pairs : {4, 64, 256}) {
      const Recall direct = Direct(Folder(model["name"]), pairs, 512, 5);
      const std::string key = std::to_string(pairs);
      EXPECT_EQ(model["right"][key], static_cast<double>(direct.right) / direct.queries)
          << model["name"] << key;
      EXPECT_NEAR(model["bits"][key], direct.bits / direct.queries, 1e-5) << model["name"] << key;
    }
  }
  EXPECT_TRUE(linear["kv_bytes_per_token"].is_null() && softmax["state_bytes"].is_null()) << text;
  // Two layers of K and V, one head of 64, 16 bits a number.
  EXPECT_EQ(softmax["kv_bytes_per_token"], 2 * 2 * 64 * 2);
  EXPECT_GT(linear["state_bytes"], 2 * 64 * 65 * 4);
  // Sharp against diffuse.
  EXPECT_GT(softmax["right"]["4"], 0.95);
  EXPECT_GT(softmax["right"]["64"], 0.95);
  EXPECT_GT(linear["right"]["4"], 0.9);
  EXPECT_LT(linear["right"]["256"], 0.3);
  EXPECT_LT(softmax["bits"]["256"], linear["bits"]["256"]);
}

TEST_F(RecallScore, ErrorsNameTheRemedy) {
  auto [text, code] = Run({"-m", "linear", "-m", "models/tiny"});
  EXPECT_EQ(code, 1) << text;
  EXPECT_THAT(
      text,
      HasSubstr("model 'models/tiny' has a vocabulary of 95 ids, and problems of recall are made of 1024; "
                "name one that was trained on them, such as those of model/zoo/recall"));
  std::tie(text, code) = Run({"-m", "liner"});
  EXPECT_EQ(code, 1) << text;
  EXPECT_THAT(text,
              HasSubstr("'models/liner' is not served here; this server has models/linear, models/softmax"));
  std::tie(text, code) = Run({"-m", "linear", "--pairs", "4,257"});
  EXPECT_EQ(code, 2) << text;
  EXPECT_THAT(text, HasSubstr("257"));
  std::tie(text, code) = Run({});
  EXPECT_EQ(code, 2) << text;
  EXPECT_THAT(text, HasSubstr("--model"));
  std::tie(text, code) = Run({"-m", "linear", "--querys", "8"});
  EXPECT_EQ(code, 2) << text;
  EXPECT_THAT(text, HasSubstr("'--querys' is no option of weir_recall_score, but --queries is"));
  address_ = "unix:" + tiny_.path() + "/nobody";
  std::tie(text, code) = Run({"-m", "linear"});
  EXPECT_EQ(code, 3) << text;
  EXPECT_THAT(text, HasSubstr("cannot reach a Weir server"));
}

TEST_F(RecallScore, PrintsATable) {
  const auto [text, code] = Run({"-m", "softmax", "--pairs", "4,8", "--queries", "64"});
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("By pairs, 64 queries each, seed 1.\n"));
  EXPECT_THAT(text, HasSubstr("softmax"));
  EXPECT_THAT(text, HasSubstr("512 B a token"));
  EXPECT_THAT(text, HasSubstr("   100.0   100.0\n"));
}

}  // namespace
}  // namespace weir::testing
