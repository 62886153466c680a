#include "runtime/device/worker_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <set>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/device/cpu_device.h"

namespace weir {
namespace {

TEST(WorkerPool, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    WorkerPool pool(threads);
    for (const int tasks : {0, 1, 2, 3, 64, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      for (int round = 0; round < 20; ++round)
        pool.ParallelFor(tasks, [&](int64_t task, int thread) {
          EXPECT_LT(thread, threads);
          runs[task].fetch_add(1);
        });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 20);
    }
  }
}

TEST(WorkerPool, WorkBeforeARegionAndAfterItIsSeen) {
  WorkerPool pool(3);
  std::vector<int64_t> values(257);
  int64_t sum = 0;
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(257, [&](int64_t task, int) { values[task] += task; });
    sum += values[256];
  }
  EXPECT_EQ(sum, int64_t{256} * 2000 * 2001 / 2);
}

TEST(WorkerPool, IdleWorkersSleep) {
  WorkerPool pool(4);
  pool.ParallelFor(16, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Processor time of the whole process: three spinning workers would have used 900 ms.
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

TEST(WorkerPool, EveryThreadFlushesDenormals) {
  FlushDenormalsOnThisThread();
  WorkerPool pool(2);
  Mutex mu;
  std::set<int> seen;
  for (int round = 0; round < 100; ++round)
    pool.ParallelFor(64, [&](int64_t, int thread) {
      volatile float tiny = std::numeric_limits<float>::min();
      const float half = tiny * 0.5f;
      EXPECT_EQ(half, 0.0f) << "thread " << thread;
      MutexLock lock(&mu);
      seen.insert(thread);
    });
  EXPECT_FALSE(seen.empty());
}

TEST(CpuDevice, CountsItsBytesAndHandsOutZeros) {
  const auto device = CreateCpuDevice(1);
  {
    DeviceBuffer buffer = *device->Allocate(1000);
    EXPECT_EQ(device->allocated_bytes(), 1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(buffer.data()[i], std::byte{0});
    DeviceBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.bytes(), 1000);
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(CpuDevice, UnknownNamesAreRefused) {
  EXPECT_TRUE(CreateDevice("cpu", 1).ok());
  EXPECT_EQ(CreateDevice("tpu", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
