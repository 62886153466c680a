#include "model/weights/output_head.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weir::testing::F32Tensor;
using ::weir::testing::TensorSpec;

constexpr std::string_view kEmbedding = "embed.weight";
constexpr std::string_view kHead = "lm_head.weight";

class OutputHeadTest : public ::testing::Test {
 protected:
  absl::StatusOr<OutputHead> Resolve(bool tie, const std::vector<TensorSpec>& tensors) {
    dir_.Write("model.safetensors", weir::testing::SafetensorsBytes(tensors));
    map_ = WeightMap::Open(dir_.path());
    EXPECT_TRUE(map_.ok()) << map_.status();
    return ResolveOutputHead(*map_, tie, kEmbedding, kHead);
  }

  const TensorSpec embedding_ = F32Tensor("embed.weight", {2, 2}, {1, 2, 3, 4});
  const TensorSpec same_head_ = F32Tensor("lm_head.weight", {2, 2}, {1, 2, 3, 4});
  const TensorSpec other_head_ = F32Tensor("lm_head.weight", {2, 2}, {1, 2, 3, 5});
  weir::testing::TempDir dir_;
  absl::StatusOr<WeightMap> map_ = absl::UnknownError("not opened");
};

TEST_F(OutputHeadTest, LOD_09_TiedWithoutAHeadUsesTheEmbedding) {
  const absl::StatusOr<OutputHead> head = Resolve(true, {embedding_});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->tensor_name, kEmbedding);
  EXPECT_TRUE(head->tied);
  EXPECT_EQ(head->warning, "");
}

TEST_F(OutputHeadTest, LOD_09_TiedWithADifferentHeadStaysTiedAndWarns) {
  for (const TensorSpec& different : {other_head_, F32Tensor("lm_head.weight", {3, 2}, {1, 2, 3, 4, 5, 6})}) {
    const absl::StatusOr<OutputHead> head = Resolve(true, {embedding_, different});
    ASSERT_TRUE(head.ok()) << head.status();
    EXPECT_EQ(head->tensor_name, kEmbedding);
    EXPECT_TRUE(head->tied);
    EXPECT_THAT(head->warning,
                AllOf(HasSubstr("'lm_head.weight' differs"), HasSubstr("tie_word_embeddings")));
    EXPECT_THAT(map_->Unused(), ::testing::Not(::testing::Contains(std::string(kHead))));
  }
}

TEST_F(OutputHeadTest, LOD_09_TiedWithAnEqualHeadDoesNotWarn) {
  const absl::StatusOr<OutputHead> head = Resolve(true, {embedding_, same_head_});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_TRUE(head->tied);
  EXPECT_EQ(head->warning, "");
}

TEST_F(OutputHeadTest, LOD_09_UntiedUsesTheHead) {
  const absl::StatusOr<OutputHead> head = Resolve(false, {embedding_, other_head_});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->tensor_name, kHead);
  EXPECT_FALSE(head->tied);
}

TEST_F(OutputHeadTest, LOD_09_UntiedWithoutAHeadIsAnErrorNamingIt) {
  const absl::Status status = Resolve(false, {embedding_}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("tie_word_embeddings")));
}

TEST_F(OutputHeadTest, LOD_09_TiedWithoutAnEmbeddingIsAnErrorNamingIt) {
  const absl::Status status = Resolve(true, {same_head_}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'embed.weight'"));
}

}  // namespace
}  // namespace weir
