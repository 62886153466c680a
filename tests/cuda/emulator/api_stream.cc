// The runtime API: streams, events, captures and graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "tests/cuda/emulator/device_state.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/streams.h"

namespace weir::emulator {
namespace {

uint64_t late_graph_uploads = 0;

}  // namespace

uint64_t LateGraphUploads() {
  const ApiCall api;
  return late_graph_uploads;
}

}  // namespace weir::emulator

using namespace weir::emulator;  // NOLINT: the functions below are C's

extern "C" {

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  *stream = Streams::Get().Create(flags);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const ApiCall api;
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr || Streams::Get().IsNullStream(stream))
    return api.Return(cudaErrorInvalidResourceHandle);
  Streams::Get().Destroy(stream);
  return api.ReturnWaited();
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = Streams::Get().RefuseWaiting(*stream); error != cudaSuccess)
    return api.Return(error);
  Streams::Get().Drain(*stream);
  return api.ReturnWaited();
}
// A GPU goes on by itself, so each question moves the work on by one step.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = Streams::Get().RefuseWaiting(*stream); error != cudaSuccess)
    return api.Return(error);
  if (stream->queue.empty()) return api.ReturnWaited();
  Streams::Get().RunNext(*stream);
  return cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (const cudaError_t error = Streams::Get().RefuseWaitingForAll(); error != cudaSuccess)
    return api.Return(error);
  Streams::Get().DrainAll();
  return api.ReturnWaited();
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  *event = Streams::Get().CreateEvent(flags);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const ApiCall api;
  return api.Return(Streams::Get().DestroyEvent(event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr || !Streams::Get().IsEvent(event)) return api.Return(cudaErrorInvalidResourceHandle);
  return api.Return(Streams::Get().Record(*event, *stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr || !Streams::Get().IsEvent(event)) return api.Return(cudaErrorInvalidResourceHandle);
  return api.Return(Streams::Get().WaitFor(*stream, *event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (!Streams::Get().IsEvent(event)) return api.Return(cudaErrorInvalidResourceHandle);
  if (const auto capture = event->capture.lock()) {
    capture->invalidated = true;
    return api.Return(cudaErrorCapturedEvent);
  }
  if (event->point != nullptr && !event->point->reached)
    Streams::Get().DrainUntil(*event->stream, *event->point);
  return api.ReturnWaited();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (!Streams::Get().IsEvent(event)) return api.Return(cudaErrorInvalidResourceHandle);
  if (event->point == nullptr || event->point->reached) return api.ReturnWaited();
  Streams::Get().RunNext(*event->stream);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  for (CUevent_st* const event : {start, end})
    if (!Streams::Get().IsEvent(event) || !event->timed || event->point == nullptr)
      return api.Return(cudaErrorInvalidResourceHandle);
  if (!start->point->reached || !end->point->reached) return api.Return(cudaErrorNotReady);
  *milliseconds = static_cast<float>(end->point->milliseconds - start->point->milliseconds);
  return cudaSuccess;
}

// ---- captures and graphs

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, ThreadCaptureMode());
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  return api.Return(Streams::Get().BeginCapture(*stream, mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const ApiCall api;
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  return api.Return(Streams::Get().EndCapture(*stream, graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const ApiCall api;
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr     ? cudaStreamCaptureStatusNone
            : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (graph == nullptr) return api.Return(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->operations, /*uploaded=*/false};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  if (Streams::Get().Find(handle) == nullptr || executable == nullptr)
    return api.Return(cudaErrorInvalidResourceHandle);
  executable->uploaded = true;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  const ApiCall api;
  if (const cudaError_t error = api.Refusal(); error != cudaSuccess) return api.Return(error);
  CUstream_st* const stream = Streams::Get().Find(handle);
  if (stream == nullptr || executable == nullptr) return api.Return(cudaErrorInvalidResourceHandle);
  if (!std::exchange(executable->uploaded, true)) ++late_graph_uploads;
  for (const Operation& operation : executable->operations)
    if (const cudaError_t error = Streams::Get().Enqueue(*stream, operation); error != cudaSuccess)
      return api.Return(error);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const ApiCall api;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const ApiCall api;
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
