// The CUDA device and its stream: memory to the byte, recordings, errors, and machines without a GPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "tests/cuda/emulator/emulator.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Device> MakeDevice() { return *CreateDevice("cuda:0", 2); }

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<int64_t>(free);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(CudaDevice, CountsItsBytesAsTheDriverDoes) {
  const auto device = MakeDevice();
  EXPECT_EQ(device->memory_bytes(), static_cast<int64_t>(emulator::Options().total_memory));
  const int64_t before = FreeBytes();
  {
    const DeviceBuffer first = *device->Allocate(1000);
    const DeviceBuffer second = *device->Allocate(3 << 20);
    const DeviceBuffer nothing = *device->Allocate(0);
    EXPECT_EQ(device->allocated_bytes(), 1000 + (3 << 20));
    const int64_t taken = before - FreeBytes();
    EXPECT_GE(taken, device->allocated_bytes());
    EXPECT_LE(taken, device->allocated_bytes() + 2 * (2 << 20));  // the driver rounds up each of the two
    int64_t seen = 0;
    std::thread([&] { seen = device->used_bytes(); }).join();  // for one that never used the device
    EXPECT_EQ(seen, device->memory_bytes() - FreeBytes());
    std::vector<char> host(1000, 'x');
    device->stream().CopyToHost(host.data(), first.data(), 1000);
    ASSERT_TRUE(device->stream().Synchronize().ok());
    EXPECT_EQ(host, std::vector<char>(1000, 0));
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(FreeBytes(), before);
}

TEST(CudaDevice, HostBuffersArePageLockedAndZero) {
  const auto device = MakeDevice();
  {
    const HostBuffer buffer = *device->AllocateHost(5000);
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, buffer.data()), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
    EXPECT_EQ(device->allocated_host_bytes(), 5000);
    EXPECT_EQ(device->allocated_bytes(), 0);
  }
  EXPECT_EQ(device->allocated_host_bytes(), 0);
}

TEST(CudaDevice, TooMuchMemoryIsAnErrorThatNamesItAndLeavesTheDeviceSound) {
  const auto device = MakeDevice();
  const absl::Status status = device->Allocate(int64_t{1} << 40).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("cannot allocate 1099511627776 bytes on cuda:0"));
  EXPECT_THAT(Message(status), HasSubstr("bytes of cuda:0 are free"));
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_TRUE(device->stream().Synchronize().ok());
  EXPECT_TRUE(device->Allocate(100).ok());
}

TEST(CudaDevice, MachinesThatCannotSayWhatTheyNeed) {
  const auto refusal = [](const std::string& name) {
    const absl::Status status = CreateDevice(name, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return Message(status);
  };
  EXPECT_THAT(refusal("cuda:7"), HasSubstr("this machine has 1 GPU(s)"));
  emulator::Options().device_count = 0;
  EXPECT_THAT(refusal("cuda"), HasSubstr("--device cpu"));
  emulator::ResetOptions();
  emulator::Options().device_error = cudaErrorInsufficientDriver;
  EXPECT_THAT(refusal("cuda:0"), HasSubstr("(no driver that works); install its driver"));
  EXPECT_TRUE(CreateDevice("cpu", 1).ok());
  emulator::Options().driver_version = 12040;
  EXPECT_THAT(refusal("cuda:0"),
              HasSubstr("its driver is for CUDA 12.4, and this program needs one for 13.0 or later"));
  emulator::ResetOptions();
  emulator::Options().compute_capability = 75;
  EXPECT_THAT(refusal("cuda:0"), HasSubstr("compute capability 7.5"));
}

// The engine's thread is not the one that made the device, and a thread's current device is the first GPU
// until it says otherwise.
TEST(CudaDevice, EveryCallOnAStreamIsMadeOnItsGpu) {
  emulator::Options().device_count = 2;
  const auto device = *CreateDevice("cuda:1", 1);
  Stream& stream = device->stream();
  const DeviceBuffer words = *device->Allocate(64);
  const HostBuffer host = *device->AllocateHost(64);
  std::unique_ptr<StepGraph> graph;
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"CopyToDevice", [&] { stream.CopyToDevice(words.data(), host.data(), 8); }},
      {"CopyToHost", [&] { stream.CopyToHost(host.data(), words.data(), 8); }},
      {"CopyOnDevice", [&] { stream.CopyOnDevice(words.data() + 8, words.data(), 8); }},
      {"Zero", [&] { stream.Zero(words.data(), 8); }},
      {"native", [&] { static_cast<void>(stream.native()); }},
      {"Synchronize", [&] { EXPECT_TRUE(stream.Synchronize().ok()); }},
      {"BeginCapture",
       [&] {
         EXPECT_TRUE(stream.BeginCapture().ok());
         graph = *stream.EndCapture();
       }},
      {"Replay", [&] { stream.Replay(*graph); }},
  };
  for (const auto& [name, call] : calls) {
    int current = -1;
    std::thread([&, &run = call] {
      run();
      EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    }).join();
    EXPECT_EQ(current, 1) << name;
  }
  EXPECT_TRUE(stream.Synchronize().ok());
}

// A word on the device that copies move about.
class CudaStreamTest : public ::testing::Test {
 protected:
  void Put(int at, int32_t value) {
    device_->stream().CopyToDevice(words_.data() + 4 * at, &value, 4);
    ASSERT_TRUE(device_->stream().Synchronize().ok());
  }
  int32_t Get(int at) {
    int32_t value = -1;
    device_->stream().CopyToHost(&value, words_.data() + 4 * at, 4);
    EXPECT_TRUE(device_->stream().Synchronize().ok());
    return value;
  }
  void CopyFirstToSecond() { device_->stream().CopyOnDevice(words_.data() + 4, words_.data(), 4); }

  const std::unique_ptr<Device> device_ = MakeDevice();
  const DeviceBuffer words_ = *device_->Allocate(64);
};

TEST_F(CudaStreamTest, ARecordingRunsWhenReplayedAndOnlyThen) {
  Stream& stream = device_->stream();
  Put(0, 5);
  ASSERT_TRUE(stream.BeginCapture().ok());
  CopyFirstToSecond();
  const auto graph = stream.EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Get(1), 0);
  const uint64_t late = emulator::LateGraphUploads();
  for (const int32_t value : {6, 7}) {
    Put(0, value);
    stream.Replay(**graph);
    EXPECT_EQ(Get(1), value);
  }
  EXPECT_EQ(emulator::LateGraphUploads(), late) << "the first replay takes longer than the others";
}

TEST_F(CudaStreamTest, ARecordingThatFailsLeavesTheDeviceSound) {
  Stream& stream = device_->stream();
  ASSERT_TRUE(stream.BeginCapture().ok());
  EXPECT_FALSE(stream.Synchronize().ok());  // not allowed here
  const absl::Status status = stream.EndCapture().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("cuda:0"));
  EXPECT_TRUE(stream.Synchronize().ok());
  Put(0, 9);
  CopyFirstToSecond();
  EXPECT_EQ(Get(1), 9);
}

TEST_F(CudaStreamTest, AnErrorIsSaidWhenWaitedForAndStays) {
  emulator::FailCopy(1, cudaErrorIllegalAddress);
  CopyFirstToSecond();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = device_->stream().Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(Message(status), HasSubstr("cudaErrorIllegalAddress"));
  }
}

}  // namespace
}  // namespace weir
