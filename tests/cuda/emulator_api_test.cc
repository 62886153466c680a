// The emulated runtime API: streams, captures, errors, memory, reports.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "tests/cuda/device_array.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/emulator_test_kernels.h"

namespace weir {
namespace {

using emulator::ReportKind;

class EmulatorStream : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }

  cudaStream_t stream_ = nullptr;
};

bool OnlyReport(ReportKind kind) {
  const std::vector<emulator::Report> reports = emulator::Reports();
  emulator::ClearReports();
  return reports.size() == 1 && reports[0].kind == kind;
}

// ---- streams

TEST_F(EmulatorStream, WorkRunsWhenItIsWaitedFor) {
  const DeviceArray<float> out(std::vector<float>(4, 9.0f));
  std::vector<float> host(4, -1.0f);
  LaunchIota(out.data(), 4, 0, stream_);
  ASSERT_EQ(cudaMemcpyAsync(host.data(), out.data(), 16, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(host, std::vector<float>(4, -1.0f));  // what a missing synchronise gives
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(host, (std::vector<float>{0, 1, 2, 3}));
}

TEST_F(EmulatorStream, QuestionsMoveTheWorkOn) {
  const DeviceArray<float> out(4);
  LaunchIota(out.data(), 4, 0, stream_);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(EmulatorStream, APageableSourceIsReadAtTheCall) {
  const DeviceArray<float> out(4);
  std::vector<float> host = {1, 2, 3, 4};
  ASSERT_EQ(cudaMemcpyAsync(out.data(), host.data(), 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  host.assign(4, 0.0f);
  EXPECT_EQ(out.Read(), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(EmulatorStream, APinnedSourceIsReadLate) {
  const DeviceArray<float> out(4);
  float* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, 16), cudaSuccess);
  std::fill_n(host, 4, 1.0f);
  ASSERT_EQ(cudaMemcpyAsync(out.data(), host, 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  std::fill_n(host, 4, 2.0f);
  EXPECT_EQ(out.Read(), std::vector<float>(4, 2.0f));
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(EmulatorStream, EventsOrderStreams) {
  cudaStream_t other = nullptr;
  cudaEvent_t start = nullptr, ready = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&ready), cudaSuccess);
  const DeviceArray<float> a(std::vector<float>(4, 0.0f)), b(4), c(4);
  ASSERT_EQ(cudaEventRecord(start, stream_), cudaSuccess);
  LaunchIota(a.data(), 4, 0, stream_);
  ASSERT_EQ(cudaEventRecord(ready, stream_), cudaSuccess);
  LaunchAddOne(a.data(), b.data(), 4, other);  // does not wait
  ASSERT_EQ(cudaStreamWaitEvent(other, ready, 0), cudaSuccess);
  LaunchAddOne(a.data(), c.data(), 4, other);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, ready), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(ready), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, ready), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(b.Read(), std::vector<float>(4, 1.0f));
  EXPECT_EQ(c.Read(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(ready), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// ---- captures

TEST_F(EmulatorStream, AGraphReplaysWhatWasCaptured) {
  const DeviceArray<float> in(4), out(4);
  float* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, 16), cudaSuccess);
  std::fill_n(host, 4, -1.0f);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(in.data(), host, 16, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  LaunchAddOne(in.data(), out.data(), 4, stream_);
  ASSERT_EQ(cudaMemcpyAsync(host, out.data(), 16, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(host[0], -1.0f);  // nothing ran yet
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(host[3], static_cast<float>(i));
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(EmulatorStream, ForbiddenCallsEndACapture) {
  const DeviceArray<float> out(4);
  std::vector<float> pageable(4);
  void* data = nullptr;
  cudaGraph_t graph = nullptr;
  const std::vector<std::function<cudaError_t()>> forbidden = {
      [&] { return cudaStreamSynchronize(stream_); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaStreamQuery(stream_); },
      [&] { return cudaMalloc(&data, 16); },
      [&] { return cudaFree(out.data()); },
      [&] { return cudaMemcpy(pageable.data(), out.data(), 16, cudaMemcpyDeviceToHost); },
      [&] { return cudaMemcpyAsync(pageable.data(), out.data(), 16, cudaMemcpyDeviceToHost, stream_); },
  };
  for (const auto& call : forbidden) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    LaunchIota(out.data(), 4, 0, stream_);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(EmulatorStream, CaptureModesSayWhoMayAllocate) {
  void* data = nullptr;
  cudaGraph_t graph = nullptr;
  const auto allocate = [&](bool other_thread) {
    cudaError_t error = cudaSuccess;
    const auto call = [&] { error = cudaMalloc(&data, 16); };
    if (other_thread)
      std::thread(call).join();
    else
      call();
    return error;
  };
  for (const bool other_thread : {false, true}) {
    for (const auto mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
      const bool allowed =
          mode == cudaStreamCaptureModeRelaxed || (other_thread && mode != cudaStreamCaptureModeGlobal);
      ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
      EXPECT_EQ(allocate(other_thread), allowed ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
      EXPECT_EQ(cudaStreamEndCapture(stream_, &graph),
                allowed ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
      if (!allowed) continue;
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      EXPECT_EQ(cudaFree(data), cudaSuccess);
    }
  }
}

TEST_F(EmulatorStream, AForkedStreamMustBeJoined) {
  cudaStream_t other = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&fork), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&join), cudaSuccess);
  const DeviceArray<float> out(4);
  for (const bool joins : {true, false}) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(fork, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other, fork, 0), cudaSuccess);
    LaunchIota(out.data(), 4, 0, other);
    ASSERT_EQ(cudaEventRecord(join, other), cudaSuccess);
    if (joins) ASSERT_EQ(cudaStreamWaitEvent(stream_, join, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (joins) EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(cudaEventDestroy(fork), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(join), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// ---- errors

TEST_F(EmulatorStream, APlannedFaultStays) {
  const DeviceArray<float> out(std::vector<float>(4, 7.0f));
  emulator::FailKernel(2, cudaErrorIllegalAddress);
  LaunchIota(out.data(), 1, 0, stream_);
  LaunchIota(out.data(), 4, 0, stream_);
  LaunchIota(out.data(), 4, 0, stream_);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorIllegalAddress);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  emulator::ResetDevices();
  EXPECT_EQ(out.Read(), (std::vector<float>{0, 7, 7, 7}));  // neither the second nor the third ran
  EXPECT_TRUE(emulator::Reports().empty());                 // an error that was asked for
  emulator::FailCopy(1, cudaErrorECCUncorrectable);
  std::vector<float> host(4);
  EXPECT_EQ(cudaMemcpy(host.data(), out.data(), 16, cudaMemcpyDeviceToHost), cudaErrorECCUncorrectable);
}

TEST_F(EmulatorStream, ARefusedLaunchIsNotSticky) {
  const DeviceArray<float> out(4);
  LaunchIota(out.data(), 4, 300 << 10, stream_);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  LaunchIota(out.data(), 4, 100 << 10, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(out.Read(), (std::vector<float>{0, 1, 2, 3}));
}

TEST_F(EmulatorStream, CopiesMustFitTheirPointers) {
  const DeviceArray<float> out(4);
  std::vector<float> host(8);
  EXPECT_EQ(cudaMemcpyAsync(out.data(), host.data(), 16, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidValue);
  EXPECT_TRUE(OnlyReport(ReportKind::kApi));
  EXPECT_EQ(cudaMemcpyAsync(host.data(), out.data(), 32, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_TRUE(OnlyReport(ReportKind::kGlobalBounds));
  emulator::ResetDevices();
}

// ---- devices and memory

TEST(EmulatorDevice, FreeMemoryFallsByWhatIsAllocated) {
  emulator::Options().total_memory = size_t{16} << 20;
  size_t free = 0, total = 0;
  void *a = nullptr, *b = nullptr, *c = nullptr;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, size_t{16} << 20);
  EXPECT_EQ(total, size_t{16} << 20);
  ASSERT_EQ(cudaMalloc(&a, 1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&b, (size_t{4} << 20) + 1), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, size_t{8} << 20);
  EXPECT_EQ(cudaMalloc(&c, (size_t{8} << 20) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(c, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&c, size_t{8} << 20), cudaSuccess);
  for (void* const data : {a, b, c}) EXPECT_EQ(cudaFree(data), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, size_t{16} << 20);
}

TEST(EmulatorDevice, DevicesAreAsMany) {
  int count = -1, device = -1;
  emulator::Options().device_count = 2;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  std::thread([&] { EXPECT_EQ(cudaGetDevice(&device), cudaSuccess); }).join();
  EXPECT_EQ(device, 0);  // a thread's own
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  emulator::Options().device_error = cudaErrorInsufficientDriver;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInsufficientDriver);
  emulator::ResetOptions();
  emulator::Options().collect_reports = true;
  static_cast<void>(cudaGetLastError());
}

TEST(EmulatorDevice, SaysWhatItIs) {
  emulator::Options().compute_capability = 120;
  cudaDeviceProp properties{};
  int value = 0;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.major, 12);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, size_t{99} << 10);
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), cudaSuccess);
  EXPECT_EQ(value, 99 << 10);
}

TEST(EmulatorDevice, AnyThreadMayAllocate) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        const DeviceArray<float> in(std::vector<float>(4, 1.0f)), out(4);
        LaunchAddOne(in.data(), out.data(), 4, nullptr);
        EXPECT_EQ(out.Read(), std::vector<float>(4, 2.0f));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// The bytes are those of two copies, and of zeroes beyond what a small piece would be.
TEST(EmulatorDevice, LargeMemoryIsZeroed) {
  constexpr size_t kBytes = (size_t{64} << 20) + 12345;
  const DeviceArray<char> data(kBytes);
  ASSERT_EQ(cudaMemsetAsync(data.data() + 3, 0, kBytes - 3, nullptr), cudaSuccess);
  const std::vector<char> got = data.Read();
  EXPECT_EQ(got[2], '\xff');
  EXPECT_TRUE(std::all_of(got.begin() + 3, got.end(), [](char c) { return c == 0; }));
}

// ---- reports

TEST(EmulatorReports, DeviceMemoryThatIsNotFreed) {
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 100), cudaSuccess);
  emulator::ReportLeaks();
  EXPECT_TRUE(OnlyReport(ReportKind::kLeak));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

using EmulatorDeathTest = EmulatorStream;

TEST_F(EmulatorDeathTest, HostCodeTouchesDeviceMemory) {
  const DeviceArray<float> data(4);
  volatile float* const pointer = data.data();
  EXPECT_DEATH(pointer[1] = 1.0f, "host code touches device memory");
  EXPECT_DEATH(static_cast<void>(pointer[1]), "host code touches device memory");
}

TEST_F(EmulatorDeathTest, AReportThatNobodyExpectsAborts) {
  const DeviceArray<float> in(64), out(64);
  const auto make_report = [&] {
    emulator::Options().collect_reports = false;
    LaunchReverse(in.data(), out.data(), 1, Bug::kDivergentBarrier, stream_);
  };
  EXPECT_DEATH(
      {
        make_report();
        cudaStreamSynchronize(stream_);
      },
      "divergent barrier(.|\n)*aborting");
  EXPECT_EXIT(
      {
        emulator::Options().collect_reports = false;
        cudaMemcpyAsync(in.data(), out.data(), 4, cudaMemcpyHostToDevice, stream_);
        std::exit(0);
      },
      testing::ExitedWithCode(70), "the process ends with 1 report");
}

// ---- cuBLASLt

class EmulatorMatmul : public EmulatorStream {
 protected:
  // Column-major for cuBLASLt: d[n][m] = a[m][k] b[n][k]^T, all row-major to the reader.
  cublasStatus_t Multiply(const DeviceArray<uint16_t>& a, const DeviceArray<uint16_t>& b, float beta,
                          const DeviceArray<float>& d, int m, int n, int k, int64_t lda) {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
    const cublasOperation_t transpose = CUBLAS_OP_T;
    const float one = 1.0f;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose));
    cublasLtMatrixLayoutCreate(&a_layout, CUDA_R_16BF, static_cast<uint64_t>(k), static_cast<uint64_t>(m),
                               lda);
    cublasLtMatrixLayoutCreate(&b_layout, CUDA_R_16BF, static_cast<uint64_t>(k), static_cast<uint64_t>(n), k);
    cublasLtMatrixLayoutCreate(&d_layout, CUDA_R_32F, static_cast<uint64_t>(m), static_cast<uint64_t>(n), m);
    cublasLtMatmulHeuristicResult_t found{};
    cublasLtMatmulPreference_t preference = nullptr;
    int count = 0;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulAlgoGetHeuristic(handle, description, a_layout, b_layout, d_layout, d_layout, preference, 1,
                                   &found, &count);
    EXPECT_EQ(count, 1);
    const cublasStatus_t status =
        cublasLtMatmul(handle, description, &one, a.data(), a_layout, b.data(), b_layout, &beta, d.data(),
                       d_layout, d.data(), d_layout, &found.algo, nullptr, 0, stream_);
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a_layout, b_layout, d_layout}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(description);
    cublasLtDestroy(handle);
    return status;
  }
};

TEST_F(EmulatorMatmul, IsThePlainProduct) {
  const std::vector<uint16_t> ones(6, 0x3f80), twos(9, 0x4000);
  const DeviceArray<uint16_t> a(ones), b(twos);             // [2][3] of 1, [3][3] of 2
  const DeviceArray<float> d(std::vector<float>(6, 1.0f));  // [3][2]
  EXPECT_EQ(Multiply(a, b, 0.0f, d, 2, 3, 3, 3), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.Read(), std::vector<float>(6, 6.0f));
  EXPECT_EQ(Multiply(a, b, 1.0f, d, 2, 3, 3, 3), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.Read(), std::vector<float>(6, 12.0f));
}

TEST_F(EmulatorMatmul, ChecksItsArguments) {
  const DeviceArray<uint16_t> a(6), b(9);
  const DeviceArray<float> d(6);
  EXPECT_EQ(Multiply(a, b, 0.0f, d, 2, 3, 3, 2), CUBLAS_STATUS_INVALID_VALUE);  // lda < k
  EXPECT_TRUE(OnlyReport(ReportKind::kApi));
  EXPECT_EQ(Multiply(a, b, 0.0f, d, 2, 3, 3, 4), CUBLAS_STATUS_SUCCESS);  // reads past the end of a
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_TRUE(OnlyReport(ReportKind::kGlobalBounds));
  emulator::ResetDevices();
}

}  // namespace
}  // namespace weir
