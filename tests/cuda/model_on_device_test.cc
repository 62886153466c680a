// What LoadModel refuses on a GPU, although the CPU would take it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/emulator/emulator.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_column.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status LoadOnDevice(const TinyModelOptions& options) {
  const std::unique_ptr<Device> device = CreateTestDevice(1);
  const TempDir folder;
  WriteTinyModel(folder.path(), options);
  return LoadModel(folder.path(), *device, {}).status();
}

TEST(LoadOnDevice, ASizeBeyondTheKernelsIsNamed) {
  TinyModelOptions softmax;
  softmax.mixer = "softmax";
  softmax.d_model = 516;
  softmax.num_heads = softmax.num_kv_heads = 2;
  softmax.num_layers = 1;
  const absl::Status wide = LoadOnDevice(softmax);
  EXPECT_EQ(wide.code(), absl::StatusCode::kFailedPrecondition) << wide;
  EXPECT_THAT(std::string(wide.message()),
              HasSubstr("head_dim is 258, and kernels on cuda:0 take at most 256; run this model with "
                        "--device cpu"));

  TinyModelOptions performer;
  performer.mixer = "performer";
  performer.num_features = 4097;
  performer.num_layers = 1;
  const absl::Status large = LoadOnDevice(performer);
  EXPECT_EQ(large.code(), absl::StatusCode::kFailedPrecondition) << large;
  EXPECT_THAT(std::string(large.message()), HasSubstr("the number of features is 4097"));
  performer.num_features = 4096;
  EXPECT_TRUE(LoadOnDevice(performer).ok());
  emulator::Options().compute_capability = 120;  // 99 KiB of shared memory to a block
  const absl::Status small_gpu = LoadOnDevice(performer);
  emulator::ResetOptions();
  EXPECT_EQ(small_gpu.code(), absl::StatusCode::kFailedPrecondition) << small_gpu;
  EXPECT_THAT(std::string(small_gpu.message()),
              AllOf(HasSubstr("the shared memory, in bytes, for states of 4096 x "),
                    HasSubstr("kernels on cuda:0 take at most 101376; run this model with --device cpu")));
}

}  // namespace
}  // namespace weir::testing
