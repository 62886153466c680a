#include "model/weights/weight_map.h"

#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::weir::testing::F32Tensor;
using ::weir::testing::HalfTensor;
using ::weir::testing::SafetensorsBytes;
using ::weir::testing::TempDir;
using ::weir::testing::TensorSpec;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A folder with tensor a in shard 1 and b, c in shard 2.
class ShardedModel {
 public:
  ShardedModel() {
    dir.Write("s1.safetensors", SafetensorsBytes({a}));
    dir.Write("s2.safetensors", SafetensorsBytes({b, c}));
    WriteIndex(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"})");
  }
  void WriteIndex(std::string_view weight_map) {
    dir.Write(kIndexName, fmt::format(R"({{"metadata":{{"total_size":24}},"weight_map":{}}})", weight_map));
  }
  absl::Status OpenStatus() const { return WeightMap::Open(dir.path()).status(); }

  const TensorSpec a = F32Tensor("a", {2}, {1, 2});
  const TensorSpec b = F32Tensor("b", {1, 3}, {3, 4, 5});
  const TensorSpec c = HalfTensor<F16>("c", {2}, {6, 7});
  TempDir dir;
};

TEST(WeightMap, GetMarksTensorsAsUsed) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes({F32Tensor("w", {2}, {1, 2}), F32Tensor("extra", {1}, {3}),
                                                   F32Tensor("aside", {1}, {3})}));
  const absl::StatusOr<WeightMap> map = WeightMap::Open(dir.path());
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->num_tensors(), 3);
  EXPECT_EQ(map->total_bytes(), 16);
  EXPECT_TRUE(map->Has("w"));
  EXPECT_FALSE(map->Has("x"));
  EXPECT_THAT(map->Unused(), ElementsAre("aside", "extra", "w"));
  const absl::StatusOr<WeightTensor> w = map->Get("w", {2});
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_THAT(w->ToF32(), ElementsAre(1, 2));
  map->MarkUsed("aside");
  map->MarkUsed("absent");
  EXPECT_THAT(map->Unused(), ElementsAre("extra"));
}

TEST(WeightMap, GetNamesWhatIsMissingOrMisshapen) {
  ShardedModel model;
  const absl::StatusOr<WeightMap> map = WeightMap::Open(model.dir.path());
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_TRUE(absl::IsNotFound(map->Get("lm_head.weight", {2, 2}).status()));
  EXPECT_THAT(Message(map->Get("lm_head.weight", {2, 2}).status()), HasSubstr("'lm_head.weight'"));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 1}, {3}, {1, 3, 1}, {}}) {
    const absl::Status status = map->Get("b", shape).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(Message(status), AllOf(HasSubstr("'b'"), HasSubstr("[1, 3]"), HasSubstr(FormatShape(shape))));
  }
  EXPECT_THAT(map->Unused(), ElementsAre("a", "b", "c"));
}

TEST(WeightMap, ShardsAreJoined) {
  ShardedModel model;
  absl::StatusOr<WeightMap> opened = WeightMap::Open(model.dir.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const WeightMap map = *std::move(opened);
  EXPECT_THAT(map.Get("a", {2})->ToF32(), ElementsAre(1, 2));
  EXPECT_THAT(map.Get("b", {1, 3})->ToF32(), ElementsAre(3, 4, 5));
  EXPECT_THAT(map.Get("c", {2})->ToF32(), ElementsAre(6, 7));
  EXPECT_TRUE(map.Unused().empty());
}

TEST(WeightMap, LOD_10_MissingShardsAreListed) {
  ShardedModel model;
  std::filesystem::remove(model.dir.File("s2.safetensors"));
  EXPECT_TRUE(absl::IsNotFound(model.OpenStatus()));
  EXPECT_THAT(Message(model.OpenStatus()), AllOf(HasSubstr("'s2.safetensors'"), Not(HasSubstr("'s1.safe")),
                                                 HasSubstr(std::string(kIndexName))));
  std::filesystem::remove(model.dir.File("s1.safetensors"));
  EXPECT_THAT(Message(model.OpenStatus()),
              AllOf(HasSubstr("'s1.safetensors'"), HasSubstr("'s2.safetensors'")));
}

TEST(WeightMap, LOD_10_TensorsThatAreNotInTheirShardAreListed) {
  ShardedModel model;
  model.WriteIndex(
      R"({"a":"s2.safetensors","b":"s2.safetensors","c":"s2.safetensors","d":"s1.safetensors"})");
  EXPECT_TRUE(absl::IsInvalidArgument(model.OpenStatus()));
  EXPECT_THAT(Message(model.OpenStatus()),
              AllOf(HasSubstr("'a in s2.safetensors'"), HasSubstr("'d in s1.safetensors'")));
}

TEST(WeightMap, LOD_10_TensorsInTwoShardsOrOutsideTheIndexAreRefused) {
  ShardedModel model;
  model.dir.Write("s1.safetensors", SafetensorsBytes({model.a, model.b}));
  EXPECT_THAT(Message(model.OpenStatus()), HasSubstr("'b in s1.safetensors and s2.safetensors'"));
  model.dir.Write("s1.safetensors", SafetensorsBytes({model.a, F32Tensor("z", {1}, {1})}));
  EXPECT_THAT(Message(model.OpenStatus()), HasSubstr("index does not name: 'z in s1.safetensors'"));
}

TEST(WeightMap, LOD_10_ADamagedShardIsRefused) {
  ShardedModel model;
  std::filesystem::resize_file(model.dir.File("s2.safetensors"), 100);
  EXPECT_THAT(Message(model.OpenStatus()), HasSubstr("s2.safetensors"));
}

TEST(WeightMap, LOD_10_ShardNamesStayInTheFolder) {
  ShardedModel model;
  for (std::string_view name : {"../s1.safetensors", "sub/s1.safetensors", "/etc/passwd", "..", ".", "",
                                "a..b", "x\\\\y", "s1.safetensors\\u0000"}) {
    model.WriteIndex(fmt::format(R"({{"a":"{}"}})", name));
    EXPECT_THAT(Message(model.OpenStatus()), HasSubstr("not the name of a file")) << name;
  }
}

TEST(WeightMap, AMalformedIndexIsRefused) {
  ShardedModel model;
  for (std::string_view map :
       {"{}", "[]", "null", R"({"a":1})", R"({"a":"s1.safetensors","a":"s1.safetensors"})"}) {
    model.WriteIndex(map);
    EXPECT_TRUE(absl::IsInvalidArgument(model.OpenStatus())) << map;
  }
  for (std::string_view text : {"", "[]", "{}", R"({"weight_map":)"}) {
    model.dir.Write(kIndexName, text);
    EXPECT_TRUE(absl::IsInvalidArgument(model.OpenStatus())) << text;
  }
}

TEST(WeightMap, AFolderWithoutWeightsNamesBothFiles) {
  TempDir dir;
  const absl::Status status = WeightMap::Open(dir.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("model.safetensors nor"), HasSubstr(std::string(kIndexName))));
}

uint64_t FingerprintOf(const std::vector<TensorSpec>& tensors) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(tensors));
  return WeightMap::Open(dir.path())->Fingerprint().value();
}

TEST(WeightMap, FingerprintIsOfTheContentsNotOfTheFiles) {
  ShardedModel model;
  const uint64_t expected = WeightMap::Open(model.dir.path())->Fingerprint().value();
  EXPECT_EQ(FingerprintOf({model.a, model.b, model.c}), expected);
  EXPECT_EQ(FingerprintOf({model.c, model.a, model.b}), expected);

  EXPECT_NE(FingerprintOf({model.a, model.b}), expected);
  EXPECT_NE(FingerprintOf({F32Tensor("A", {2}, {1, 2}), model.b, model.c}), expected);
  EXPECT_NE(FingerprintOf({model.a, F32Tensor("b", {3, 1}, {3, 4, 5}), model.c}), expected);
  EXPECT_NE(FingerprintOf({model.a, model.b, {"c", "BF16", {2}, model.c.bytes}}), expected);
  for (size_t i = 0; i < model.b.bytes.size(); ++i) {
    TensorSpec changed = model.b;
    changed.bytes[i] = static_cast<char>(changed.bytes[i] ^ 1);
    EXPECT_NE(FingerprintOf({model.a, changed, model.c}), expected) << i;
  }
}

TEST(WeightMap, FingerprintSeesTheEndOfALargeTensor) {
  std::vector<float> values((3 << 20) / sizeof(float) + 5, 0.5f);  // more than three read blocks
  const uint64_t before = FingerprintOf({F32Tensor("w", {static_cast<int64_t>(values.size())}, values)});
  values.back() = 0.25f;
  EXPECT_NE(FingerprintOf({F32Tensor("w", {static_cast<int64_t>(values.size())}, values)}), before);
}

TEST(WeightMap, SeveralThreadsMayReadAtOnce) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 64; ++i)
    tensors.push_back(F32Tensor(fmt::format("w{}", i), {1}, {static_cast<float>(i)}));
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(tensors));
  const absl::StatusOr<WeightMap> map = WeightMap::Open(dir.path());
  ASSERT_TRUE(map.ok()) << map.status();
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 64; ++i) {
        const absl::StatusOr<WeightTensor> tensor = map->Get(fmt::format("w{}", i), {1});
        right += tensor.ok() && tensor->At(0) == static_cast<float>(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 64);
  EXPECT_TRUE(map->Unused().empty());
}

TEST(WeightMap, ATrainedModelLoads) {
  const std::string folder = std::string(WEIR_SOURCE_DIR) + "/../shared/data/stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  const absl::StatusOr<WeightMap> map = WeightMap::Open(folder);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_FALSE(map->Has("lm_head.weight"));  // tied
  const absl::StatusOr<WeightTensor> embedding = map->Get("model.embed_tokens.weight", {512, 64});
  ASSERT_TRUE(embedding.ok()) << embedding.status();
  double sum_of_squares = 0;
  for (float value : embedding->ToF32()) sum_of_squares += static_cast<double>(value) * value;
  EXPECT_GT(sum_of_squares, 1.0);
  for (const std::string& name : map->Unused()) {
    const absl::StatusOr<WeightTensor> tensor = map->Get(name, map->Find(name)->shape);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_TRUE(tensor->CheckFinite().ok()) << tensor->CheckFinite();
  }
  EXPECT_GT(map->total_bytes(), 1'000'000);
}

}  // namespace
}  // namespace weir
