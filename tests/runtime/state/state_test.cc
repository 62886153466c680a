#include <gtest/gtest.h>

#include <cstring>

#include "runtime/state/kv_pool.h"
#include "runtime/state/state_arena.h"

namespace weir {
namespace {

class StateTest : public ::testing::Test {
 protected:
  const std::vector<StateSpec> specs_ = {{"s", {2, 3, 5}}, {"z", {7}}};
  const std::unique_ptr<Device> device_ = CreateCpuDevice(1);
};

TEST_F(StateTest, SlotsAreContiguousAndViewsPointIntoThem) {
  StateArena arena = *StateArena::Create(specs_, 3, *device_);
  EXPECT_EQ(arena.slot_bytes(), 128 + 64);  // each tensor rounded up to 64 bytes
  StateSlot a = *arena.Claim();
  StateSlot b = *arena.Claim();
  arena.tensors()[0].row<float>(b.index())[29] = 1.5f;
  arena.tensors()[1].row<float>(b.index())[6] = 2.5f;
  std::vector<float> blob(arena.slot_bytes() / 4);
  arena.Read(b, 0, arena.slot_bytes(), blob.data());
  EXPECT_EQ(blob[29], 1.5f);
  EXPECT_EQ(blob[32 + 6], 2.5f);
  arena.Read(a, 0, arena.slot_bytes(), blob.data());
  for (const float x : blob) EXPECT_EQ(x, 0.0f);
  arena.Copy(b, a);
  EXPECT_EQ(arena.tensors()[1].row<float>(a.index())[6], 2.5f);
}

TEST_F(StateTest, ASlotThatIsToBeOverwrittenIsNotZeroed) {
  StateArena arena = *StateArena::Create(specs_, 1, *device_);
  std::vector<float> blob(arena.slot_bytes() / 4, 3.0f);
  {
    StateSlot slot = *arena.ClaimToOverwrite();
    EXPECT_FALSE(arena.ClaimToOverwrite().has_value());
    arena.Write(slot, 0, arena.slot_bytes(), blob.data());
  }
  {
    StateSlot slot = *arena.ClaimToOverwrite();
    arena.Read(slot, 4, 8, blob.data());
    EXPECT_EQ(blob[1], 3.0f);
  }
  StateSlot slot = *arena.Claim();
  arena.Read(slot, 0, arena.slot_bytes(), blob.data());
  for (const float x : blob) EXPECT_EQ(x, 0.0f);
}

TEST_F(StateTest, SES_01_ReleaseIsIdempotentAndSlotsComeBackZeroed) {
  StateArena arena = *StateArena::Create(specs_, 2, *device_);
  {
    StateSlot slot = *arena.Claim();
    arena.tensors()[0].row<float>(slot.index())[0] = 9.0f;
    StateSlot moved = std::move(slot);
    moved.Release();
    moved.Release();
    EXPECT_EQ(arena.num_free(), 2);
  }
  EXPECT_EQ(arena.num_free(), 2);
  StateSlot first = *arena.Claim();
  StateSlot second = *arena.Claim();
  EXPECT_NE(first.index(), second.index());
  EXPECT_FALSE(arena.Claim().has_value());
  EXPECT_EQ(arena.tensors()[0].row<float>(first.index())[0], 0.0f);
  EXPECT_EQ(arena.tensors()[0].row<float>(second.index())[0], 0.0f);
}

TEST_F(StateTest, BlocksAreReservedAllOrNothingAndComeBack) {
  PagedSpec spec;
  spec.num_layers = 2;
  spec.num_kv_heads = 3;
  spec.head_dim = 4;
  KvPool pool = *KvPool::Create(spec, 5, *device_);
  EXPECT_EQ(pool.block_bytes(), 2 * 2 * 3 * 4 * kKvBlockTokens * 2);
  EXPECT_EQ(pool.layers().size(), 2u);
  BlockTable a, b;
  EXPECT_TRUE(a.Reserve(&pool, 2 * kKvBlockTokens + 1));
  EXPECT_EQ(a.blocks().size(), 3u);
  EXPECT_FALSE(b.Reserve(&pool, 3 * kKvBlockTokens));
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_TRUE(b.Reserve(&pool, 2 * kKvBlockTokens));
  a.Truncate(kKvBlockTokens);
  EXPECT_EQ(pool.num_free(), 2);
  BlockTable moved = std::move(a);
  moved.Truncate(0);
  b = BlockTable();
  EXPECT_EQ(pool.num_free(), 5);
}

TEST_F(StateTest, BlocksReadWriteAndCopyWholeTokens) {
  PagedSpec spec;
  spec.num_layers = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 2;
  KvPool pool = *KvPool::Create(spec, 6, *device_);
  BlockTable a, b, c;
  ASSERT_TRUE(a.Reserve(&pool, 2 * kKvBlockTokens) && b.Reserve(&pool, 2 * kKvBlockTokens) &&
              c.Reserve(&pool, 2 * kKvBlockTokens));
  std::vector<std::byte> bytes(2 * pool.block_bytes()), got(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  const auto all = static_cast<int64_t>(bytes.size());
  pool.Write(b, 0, all, bytes.data());
  pool.Copy(b, c);
  pool.Read(c, 0, all, got.data());
  EXPECT_EQ(std::memcmp(bytes.data(), got.data(), bytes.size()), 0);
  // In pieces that end anywhere.
  for (const int64_t piece : {int64_t{1}, int64_t{100}, all - 1}) {
    std::fill(got.begin(), got.end(), std::byte{0});
    for (int64_t at = 0; at < all; at += piece) pool.Read(c, at, std::min(piece, all - at), got.data() + at);
    EXPECT_EQ(std::memcmp(bytes.data(), got.data(), bytes.size()), 0);
    for (int64_t at = 0; at < all; at += piece) pool.Write(c, at, std::min(piece, all - at), got.data() + at);
    pool.Read(c, 0, all, got.data());
    EXPECT_EQ(std::memcmp(bytes.data(), got.data(), bytes.size()), 0);
  }
  pool.Read(a, 0, all, got.data());
  for (const std::byte x : got) EXPECT_EQ(x, std::byte{0});
}

}  // namespace
}  // namespace weir
