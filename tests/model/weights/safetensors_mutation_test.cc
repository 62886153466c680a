// Damages a good file in 20,000 reproducible ways. Whatever is still accepted must be readable and tile the
// file.
#include <filesystem>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "model/weights/safetensors.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  void Mutate(std::string* file) {
    const size_t header_end = std::min<size_t>(file->size(), 330);
    const size_t at = Below(header_end + 1);
    switch (Below(7)) {
      case 0:
        if (at < file->size()) (*file)[at] = static_cast<char>((*file)[at] ^ (1 << Below(8)));
        break;
      case 1:
        file->resize(Below(file->size() + 1));
        break;
      case 2:
        file->insert(at, 1, kAlphabet[Below(kAlphabet.size())]);
        break;
      case 3:
        file->erase(at, 1 + Below(4));
        break;
      case 4:
        file->insert(at, file->substr(Below(header_end + 1), Below(40)));
        break;
      case 5:
        if (at < file->size()) (*file)[at] = kAlphabet[Below(kAlphabet.size())];
        break;
      case 6:
        ReplaceNumber(file, at);
        break;
    }
  }
  // Makes the length field fit again, so that the damage reaches the JSON and the entries.
  void RepairLength(std::string* file, size_t data_bytes) {
    if (file->size() < 8 + data_bytes) return;
    const uint64_t length = file->size() - 8 - data_bytes;
    for (size_t i = 0; i < 8; ++i) (*file)[i] = static_cast<char>(length >> (8 * i));
  }
  size_t Below(size_t bound) { return random_() % bound; }

 private:
  void ReplaceNumber(std::string* file, size_t at) {
    static constexpr std::string_view kNumbers[] = {"0",   "-1", "8", "4294967296", "18446744073709551615",
                                                    "1e3", "16"};
    const size_t begin = file->find_first_of("0123456789", std::max<size_t>(at, 8));
    if (begin == std::string::npos) return;
    const size_t end = std::min(file->find_first_not_of("0123456789", begin), file->size());
    file->replace(begin, end - begin, kNumbers[Below(std::size(kNumbers))]);
  }

  static constexpr std::string_view kAlphabet = "{}[]\":,0123456789-.eE\\ \n\tuFabnt\x80\xff";
  std::mt19937 random_;
};

TEST(SafetensorsMutation, DamagedFilesAreRefusedOrReadableNeverFatal) {
  const std::string good = testing::SafetensorsBytes({
      testing::F32Tensor("embedding.weight", {2, 3}, {1, 2, 3, 4, 5, 6}),
      testing::HalfTensor<F16>("layers.0.norm.weight", {4}, {1, 1, 1, 1}),
      testing::F32Tensor("empty", {0, 8}, {}),
      testing::HalfTensor<BF16>("layers.0.scale", {}, {0.5f}),
  });
  constexpr size_t kDataBytes = 24 + 8 + 2;
  weir::testing::TempDir dir;
  Mutator mutator(20240229);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (size_t n = 1 + mutator.Below(3); n > 0; --n) mutator.Mutate(&bytes);
    if (mutator.Below(3) != 0) mutator.RepairLength(&bytes, kDataBytes);
    // A new file each time: file systems flush one that is cut and rewritten, which takes milliseconds.
    const std::string path = dir.Write(fmt::format("f{}", i), bytes);
    const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    std::filesystem::remove(path);
    if (!file.ok()) {
      ++refused;
      ASSERT_TRUE(absl::IsInvalidArgument(file.status())) << file.status();
      ASSERT_LT(file.status().message().size(), 1000u);
      continue;
    }
    ++accepted;
    uint64_t total = 0;
    for (const SafetensorsEntry& entry : file->tensors()) {
      total += entry.num_bytes;
      if (!entry.dtype) continue;
      const absl::StatusOr<WeightTensor> tensor = file->Read(entry);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      uint64_t product = DTypeBytes(*entry.dtype);
      for (int64_t extent : entry.shape) product *= static_cast<uint64_t>(extent);
      ASSERT_EQ(product, entry.num_bytes);
      ASSERT_EQ(tensor->ToF32().size() * DTypeBytes(*entry.dtype), entry.num_bytes);
    }
    ASSERT_LE(total, bytes.size() - 8);
  }
  // Both outcomes must be frequent, or the mutations would show nothing.
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace weir
