#include "model/weights/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

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
using ::weir::testing::HalfTensor;
using ::weir::testing::RawSafetensors;
using ::weir::testing::SafetensorsBytes;
using ::weir::testing::TempDir;

absl::Status OpenStatus(std::string_view bytes) {
  TempDir dir;
  return SafetensorsFile::Open(dir.Write("model.safetensors", bytes)).status();
}

// What Open() says of a file, "" when it accepts it. The file's name must be in every refusal.
std::string Refusal(std::string_view bytes) {
  const absl::Status status = OpenStatus(bytes);
  const std::string message(status.message());
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(message, HasSubstr("model.safetensors"));
    EXPECT_LT(message.size(), 1000u);
  }
  return message;
}

std::string OneTensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"blk.w":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}
std::string RefusalOfHeader(std::string_view header, size_t data_bytes) {
  return Refusal(RawSafetensors(header, std::string(data_bytes, '\1')));
}

TEST(Safetensors, LOD_01_ShapeAndByteRangeMustAgree) {
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[32,8]", "[0,65536]"), 65536),
              AllOf(HasSubstr("'blk.w'"), HasSubstr("65536"), HasSubstr("1024")));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1000,1000]", "[0,4]"), 4),
              AllOf(HasSubstr("'blk.w'"), HasSubstr("4000000"), HasSubstr(" 4 bytes")));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1]", "[4]"), 4), HasSubstr("exactly two"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1]", "[0,2,4]"), 4), HasSubstr("exactly two"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1]", "[4,0]"), 4),
              HasSubstr("begins at 4 after its end at 0"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1]", "[-4,0]"), 4), HasSubstr("'-4'"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1]", "[0,4.0]"), 4), HasSubstr("'4.0'"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[2]", "[0,8]"), 4),
              AllOf(HasSubstr("'blk.w'"), HasSubstr("ends at 8"), HasSubstr("4 bytes of data")));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[1]", "[18446744073709551612,18446744073709551615]"), 4),
              HasSubstr("18446744073709551615"));
}

TEST(Safetensors, LOD_02_ElementCountIsMultipliedWithCheck) {
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[4294967296,4294967296]", "[0,16]"), 16),
              AllOf(HasSubstr("[4294967296,4294967296]"), HasSubstr("16 bytes")));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[9223372036854775808,2]", "[0,16]"), 16),
              HasSubstr("9223372036854775808"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[4294967296,4294967296,0]", "[0,0]"), 0), HasSubstr("2^63"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F32", "[99999999999999999999]", "[0,0]"), 0),
              HasSubstr("not an integer"));
  EXPECT_EQ(RefusalOfHeader(OneTensor("F32", "[0,8]", "[0,0]"), 0), "");
  EXPECT_EQ(RefusalOfHeader(OneTensor("F32", "[]", "[0,4]"), 4), "");
}

TEST(Safetensors, EmptyAndScalarTensorsCanBeRead) {
  TempDir dir;
  const std::string path =
      dir.Write("f", SafetensorsBytes({F32Tensor("empty", {0, 8}, {}), F32Tensor("scalar", {}, {2.5f})}));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Read(*file->Find("empty"))->num_elements(), 0);
  EXPECT_THAT(file->Read(*file->Find("scalar"))->ToF32(), ElementsAre(2.5f));
  EXPECT_EQ(file->Find("other"), nullptr);
}

TEST(Safetensors, LOD_03_HeaderLengthIsCheckedBeforeUse) {
  const std::string header = OneTensor("F32", "[1]", "[0,4]");
  const uint64_t file_size = 8 + header.size() + 4;
  for (uint64_t length :
       {~uint64_t{0}, uint64_t{1} << 63, file_size - 7, uint64_t{0}, uint64_t{100'000'001}}) {
    EXPECT_THAT(Refusal(RawSafetensors(header, "\1\1\1\1", length)), HasSubstr(fmt::format("{}", length)));
  }
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_THAT(Refusal(std::string(size, '\0')), HasSubstr(fmt::format("has {} bytes", size)));
  }
  EXPECT_THAT(RefusalOfHeader(" " + header, 4), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(RefusalOfHeader("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(RefusalOfHeader(header + "x", 4), HasSubstr("JSON"));
  EXPECT_EQ(RefusalOfHeader(header + "       ", 4), "");
}

TEST(Safetensors, LOD_03_AHeaderOverTheLimitIsRefusedThoughTheFileIsThatLong) {
  TempDir dir;
  const std::string path = dir.Write("big", RawSafetensors("{}", "", 100'000'001));
  std::filesystem::resize_file(path, 100'000'100);  // sparse
  EXPECT_THAT(std::string(SafetensorsFile::Open(path).status().message()), HasSubstr("100000001"));
}

std::string TwoTensors(std::string_view first, std::string_view second) {
  return fmt::format(R"({{"k":{{"dtype":"F32","shape":[4],"data_offsets":{}}},)"
                     R"("v":{{"dtype":"F32","shape":[4],"data_offsets":{}}}}})",
                     first, second);
}

// What people have in the place of weights that they believe they have downloaded.
TEST(Safetensors, PointersAndWebPagesAreCalledByTheirNames) {
  EXPECT_THAT(Refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1234\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(Refusal("<!doctype html><html><body>Not found</body></html>"), HasSubstr("a web page"));
  EXPECT_THAT(Refusal("<html><body>Not found</body></html>"), HasSubstr("a web page"));
}

TEST(Safetensors, LOD_04_RangesTileTheData) {
  EXPECT_THAT(RefusalOfHeader(TwoTensors("[0,16]", "[0,16]"), 16), HasSubstr("overlap"));
  EXPECT_THAT(RefusalOfHeader(TwoTensors("[0,16]", "[4,20]"), 20),
              AllOf(HasSubstr("'v'"), HasSubstr("byte 4"), HasSubstr("ends at 16"), HasSubstr("overlap")));
  EXPECT_THAT(RefusalOfHeader(TwoTensors("[0,16]", "[32,48]"), 48),
              AllOf(HasSubstr("'v'"), HasSubstr("hole")));
  EXPECT_THAT(RefusalOfHeader(TwoTensors("[16,32]", "[32,48]"), 48), HasSubstr("hole"));
  EXPECT_EQ(RefusalOfHeader(TwoTensors("[16,32]", "[0,16]"), 32), "");
}

TEST(Safetensors, LOD_04_UnsortedEntriesReadTheirOwnBytes) {
  TempDir dir;
  const std::string path = dir.Write("f", RawSafetensors(TwoTensors("[16,32]", "[0,16]"),
                                                         testing::BytesOf<float>({1, 2, 3, 4, 5, 6, 7, 8})));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->Read(*file->Find("k"))->ToF32(), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(file->Read(*file->Find("v"))->ToF32(), ElementsAre(1, 2, 3, 4));
}

TEST(Safetensors, LOD_07_DataMayStartAnywhere) {
  const std::vector<float> values = {1.0f, -2.0f, 0.5f, 96.0f};
  for (size_t header_bytes : {size_t{0xA766}, size_t{0xA767}, size_t{0xA769}, size_t{0xA76B}}) {
    TempDir dir;
    const std::string path = dir.Write(
        "f", SafetensorsBytes({HalfTensor<BF16>("bf16", {4}, values), HalfTensor<F16>("f16", {2, 2}, values),
                               F32Tensor("f32", {4}, values)},
                              header_bytes));
    const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->Find("bf16")->offset, 8 + header_bytes);
    for (const SafetensorsEntry& entry : file->tensors()) {
      EXPECT_EQ(file->Read(entry)->ToF32(), values) << entry.name << " after a header of " << header_bytes;
    }
  }
}

TEST(Safetensors, LOD_08_AWrongFileSizeIsRefusedWithBothNumbers) {
  const std::string good = SafetensorsBytes({F32Tensor("a", {2}, {1, 2}), F32Tensor("b", {3}, {3, 4, 5})});
  EXPECT_EQ(Refusal(good), "");
  EXPECT_THAT(Refusal(good.substr(0, good.size() - 1)),
              AllOf(HasSubstr("ends at 20"), HasSubstr("19 bytes")));
  EXPECT_THAT(Refusal(good.substr(0, good.size() - 12)),
              AllOf(HasSubstr("ends at 20"), HasSubstr("8 bytes")));
  for (size_t extra : {size_t{1}, size_t{4096}}) {
    EXPECT_THAT(Refusal(good + std::string(extra, '\0')),
                AllOf(HasSubstr(fmt::format("end at byte {}", good.size())),
                      HasSubstr(fmt::format("has {} bytes", good.size() + extra))));
  }
}

TEST(Safetensors, LOD_08_AFileThatChangesAfterOpenGivesAnErrorAndNoSignal) {
  TempDir dir;
  const std::string good = SafetensorsBytes({F32Tensor("w", {65536}, std::vector<float>(65536, 1.0f))});
  const std::string path = dir.Write("f", good);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorsEntry& entry = *file->Find("w");
  const absl::StatusOr<WeightTensor> before = file->Read(entry);
  ASSERT_TRUE(before.ok()) << before.status();

  for (uintmax_t size :
       {uintmax_t{good.size() - 1}, uintmax_t{4096}, uintmax_t{0}, uintmax_t{good.size() + 1}}) {
    std::filesystem::resize_file(path, size);
    const absl::StatusOr<WeightTensor> after = file->Read(entry);
    EXPECT_EQ(after.status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(std::string(after.status().message()),
                AllOf(HasSubstr("'w'"), HasSubstr(fmt::format("expected {} bytes", good.size())),
                      HasSubstr(fmt::format("now has {}", size))));
  }
  EXPECT_EQ(before->At(65535), 1.0f);  // what was read is our own copy
}

TEST(Safetensors, LOD_08_ARewriteOfTheSameSizeIsSeen) {
  TempDir dir;
  const std::string path = dir.Write("f", SafetensorsBytes({F32Tensor("w", {1}, {1})}));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  dir.Write("f", SafetensorsBytes({F32Tensor("w", {1}, {2})}));
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 1}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(file->Read(*file->Find("w")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Safetensors, DuplicateKeysAreRefusedAtEveryLevel) {
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                              4),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("'dtype' is there twice"));
  EXPECT_THAT(RefusalOfHeader(R"({"__metadata__":{"x":"1","\u0078":"2"}})", 0),
              HasSubstr("'x' is there twice"));
}

TEST(Safetensors, EveryFieldOfAnEntryIsChecked) {
  EXPECT_THAT(RefusalOfHeader(R"({"a":[]})", 0), HasSubstr("not described by an object"));
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), HasSubstr("no dtype"));
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), HasSubstr("no shape"));
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"dtype":"F32","shape":[]}})", 4), HasSubstr("no data_offsets"));
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"strides":[]}})", 4),
              HasSubstr("unknown field 'strides'"));
  for (std::string_view shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[true]", "[[1]]", "1", "null"}) {
    EXPECT_THAT(RefusalOfHeader(OneTensor("F32", shape, "[0,4]"), 4), HasSubstr("shape")) << shape;
  }
  EXPECT_THAT(RefusalOfHeader(OneTensor("F33", "[1]", "[0,4]"), 4), HasSubstr("unknown dtype 'F33'"));
  EXPECT_THAT(RefusalOfHeader(OneTensor("F4", "[3]", "[0,1]"), 1), HasSubstr("12 bits"));
}

TEST(Safetensors, MetadataIsAMapOfStrings) {
  EXPECT_EQ(RefusalOfHeader(R"({"__metadata__":{"format":"pt"}})", 0), "");
  EXPECT_THAT(RefusalOfHeader(R"({"__metadata__":{"format":1}})", 0), HasSubstr("'format' is not a string"));
  EXPECT_THAT(RefusalOfHeader(R"({"__metadata__":"pt"})", 0), HasSubstr("not an object"));
}

TEST(Safetensors, OtherTypesAreListedButNotServed) {
  TempDir dir;
  const std::string path =
      dir.Write("f", RawSafetensors(OneTensor("I64", "[2]", "[0,16]"), std::string(16, '\0')));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status status = file->Read(file->tensors().front()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'blk.w'"), HasSubstr("I64")));
}

TEST(Safetensors, ErrorsEscapeAndCutHostileNames) {
  const std::string name(100'000, 'n');
  EXPECT_THAT(RefusalOfHeader(fmt::format(R"({{"{}":[]}})", name), 0), HasSubstr("nnn…"));
  EXPECT_THAT(RefusalOfHeader("{\"a\\u0000\\n\":[]}", 0), HasSubstr("a\\x00\\x0a"));
  EXPECT_THAT(RefusalOfHeader("{\"\xff\xc3\x28\":[]}", 0), HasSubstr("JSON"));
}

TEST(Safetensors, OnlyRegularFilesAreOpened) {
  TempDir dir;
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFile::Open(dir.File("absent")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsFile::Open(dir.path()).status()));
  ASSERT_EQ(::mkfifo(dir.File("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsFile::Open(dir.File("pipe")).status()));
}

// Descriptors of this process that are open on `path`, and whether all of them are close-on-exec.
std::pair<int, bool> OpenDescriptors(const std::string& path) {
  int count = 0;
  bool all_close_on_exec = true;
  for (const auto& item : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(item.path(), gone) != path) continue;
    ++count;
    const int flags = ::fcntl(std::stoi(item.path().filename().string()), F_GETFD);
    all_close_on_exec = all_close_on_exec && (flags & FD_CLOEXEC) != 0;
  }
  return {count, all_close_on_exec};
}

TEST(Safetensors, OwnsOneDescriptorThroughMovesAndClosesIt) {
  TempDir dir;
  const std::string path = dir.Write("f", SafetensorsBytes({F32Tensor("w", {1}, {7})}));
  {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    SafetensorsFile moved = *std::move(file);
    EXPECT_EQ(OpenDescriptors(path), std::pair(1, true));
    absl::StatusOr<SafetensorsFile> other = SafetensorsFile::Open(path);
    ASSERT_TRUE(other.ok()) << other.status();
    moved = *std::move(other);
    EXPECT_THAT(moved.Read(*moved.Find("w"))->ToF32(), ElementsAre(7));
  }
  EXPECT_EQ(OpenDescriptors(path).first, 0);
  const std::string bad = dir.Write("bad", "12345678{");
  EXPECT_FALSE(SafetensorsFile::Open(bad).ok());
  EXPECT_EQ(OpenDescriptors(bad).first, 0);
}

}  // namespace
}  // namespace weir
