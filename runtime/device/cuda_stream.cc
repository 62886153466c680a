#include "runtime/device/cuda_stream.h"

#include <utility>

#include "fmt/format.h"

namespace weir {
namespace {

class CudaGraph final : public StepGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t native() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

}  // namespace

std::string CudaErrorText(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

CudaStream::CudaStream(int index) : index_(index) {
  Enter();
  Keep(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  Enter();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void* CudaStream::native() {
  Enter();
  return stream_;
}

void CudaStream::CopyToDevice(void* dst, const void* src, int64_t bytes) {
  Copy(dst, src, bytes, cudaMemcpyHostToDevice);
}
void CudaStream::CopyToHost(void* dst, const void* src, int64_t bytes) {
  Copy(dst, src, bytes, cudaMemcpyDeviceToHost);
}
void CudaStream::CopyOnDevice(void* dst, const void* src, int64_t bytes) {
  Copy(dst, src, bytes, cudaMemcpyDeviceToDevice);
}
void CudaStream::Copy(void* dst, const void* src, int64_t bytes, cudaMemcpyKind kind) {
  if (bytes > 0 && Enter()) Keep(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), kind, stream_));
}

void CudaStream::Zero(void* dst, int64_t bytes) {
  if (bytes > 0 && Enter()) Keep(cudaMemsetAsync(dst, 0, static_cast<size_t>(bytes), stream_));
}

void CudaStream::Fail(cudaError_t error) {
  Keep(cudaGetLastError());
  Keep(error);
}

cudaError_t CudaStream::TakeError() {
  const cudaError_t launch = cudaGetLastError();
  Keep(launch);
  return std::exchange(error_, cudaSuccess);
}

absl::Status CudaStream::Synchronize() {
  Enter();
  Keep(cudaStreamSynchronize(stream_));
  const cudaError_t error = TakeError();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(fmt::format("cuda:{}: {}", index_, CudaErrorText(error)));
}

// Thread-local: what other threads do with CUDA meanwhile neither enters the recording nor breaks it.
absl::Status CudaStream::BeginCapture() {
  cudaError_t error = cudaSetDevice(index_);
  if (error == cudaSuccess) error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (error == cudaSuccess) return absl::OkStatus();
  static_cast<void>(cudaGetLastError());
  return absl::InternalError(fmt::format("cuda:{}: {}", index_, CudaErrorText(error)));
}

// A failed recording leaves no error behind: the device is sound, and the work can still be run as it is.
// What the graph needs on the device is brought there now, not by its first replay, which would take longer
// for it.
absl::StatusOr<std::unique_ptr<StepGraph>> CudaStream::EndCapture() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream_, &graph);
  const cudaError_t inside = TakeError();  // of what was recorded
  if (error == cudaSuccess) error = inside;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (error == cudaSuccess) error = cudaGraphUpload(executable, stream_);
  if (error == cudaSuccess) return std::make_unique<CudaGraph>(executable);
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  static_cast<void>(cudaGetLastError());
  return absl::InternalError(fmt::format("cuda:{}: {}", index_, CudaErrorText(error)));
}

void CudaStream::Replay(const StepGraph& graph) {
  if (Enter()) Keep(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).native(), stream_));
}

}  // namespace weir
