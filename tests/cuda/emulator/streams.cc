#include "tests/cuda/emulator/streams.h"

#include <chrono>
#include <utility>

#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/device_state.h"

namespace weir::emulator {
namespace {

double Milliseconds() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Streams& Streams::Get() {
  static Streams* const streams = new Streams;
  return *streams;
}

CUstream_st* Streams::Create(unsigned flags) {
  auto stream = std::make_unique<CUstream_st>();
  stream->waits_for_null_stream = (flags & cudaStreamNonBlocking) == 0;
  CUstream_st* const handle = stream.get();
  streams_[handle] = std::move(stream);
  return handle;
}

void Streams::Destroy(CUstream_st* stream) {
  Drain(*stream);  // a GPU would go on with it by itself
  if (stream->capture != nullptr) stream->capture->invalidated = true;
  streams_.erase(stream);
}

CUstream_st* Streams::Find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return &null_stream_;
  return streams_.count(handle) > 0 ? handle : nullptr;
}

CUevent_st* Streams::CreateEvent(unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->timed = (flags & cudaEventDisableTiming) == 0;
  CUevent_st* const handle = event.get();
  events_[handle] = std::move(event);
  return handle;
}

void Streams::RunNext(CUstream_st& stream) {
  if (stream.queue.empty()) return;
  const Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  operation();
}

// Device memory is made accessible once for all of it, since that takes a system call for each allocation.
void Streams::Drain(CUstream_st& stream) {
  if (stream.queue.empty()) return;
  const DeviceHeap::Access access;
  while (!stream.queue.empty()) RunNext(stream);
}

void Streams::DrainUntil(CUstream_st& stream, const EventPoint& point) {
  const DeviceHeap::Access access;
  while (!point.reached && !stream.queue.empty()) RunNext(stream);
}

void Streams::DrainAll() {
  Drain(null_stream_);
  for (const auto& [handle, stream] : streams_) Drain(*stream);
}

void Streams::DropAll() {
  null_stream_.queue.clear();
  for (const auto& [handle, stream] : streams_) {
    stream->queue.clear();
    stream->capture.reset();
  }
}

// Behind the other streams' work that the null stream orders it after.
void Streams::PushOrdered(CUstream_st& stream, Operation operation) {
  if (&stream == &null_stream_) {
    for (const auto& [handle, other] : streams_)
      if (other->waits_for_null_stream && !other->queue.empty()) Drain(*other);
  } else if (stream.waits_for_null_stream) {
    Drain(null_stream_);
  }
  stream.queue.push_back(std::move(operation));
  if (!Options().lazy_streams) Drain(stream);
}

cudaError_t Streams::Enqueue(CUstream_st& stream, Operation operation) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    stream.capture->operations.push_back(std::move(operation));
    ++stream.captured;
    if (&stream != stream.capture->origin) stream.capture->unjoined.insert(&stream);
    return cudaSuccess;
  }
  if (&stream == &null_stream_) {
    for (const auto& [handle, other] : streams_) {
      if (other->capture == nullptr || !other->waits_for_null_stream) continue;
      other->capture->invalidated = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  PushOrdered(stream, std::move(operation));
  return Options().lazy_streams ? cudaSuccess : DeviceState::Get().sticky_error();
}

cudaError_t Streams::Record(CUevent_st& event, CUstream_st& stream) {
  event.stream = &stream;
  event.capture = stream.capture;
  event.captured = stream.captured;
  event.point = std::make_shared<EventPoint>();
  if (stream.capture != nullptr)
    return stream.capture->invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  PushOrdered(stream, [point = event.point] { *point = {true, Milliseconds()}; });
  return cudaSuccess;
}

cudaError_t Streams::WaitFor(CUstream_st& stream, CUevent_st& event) {
  if (const std::shared_ptr<Capture> capture = event.capture.lock()) {
    if (stream.capture != nullptr && stream.capture != capture) {
      capture->invalidated = stream.capture->invalidated = true;
      return cudaErrorStreamCaptureMerge;
    }
    if (event.captured == event.stream->captured) capture->unjoined.erase(event.stream);
    stream.capture = capture;
    if (&stream != capture->origin) capture->unjoined.insert(&stream);
    return cudaSuccess;
  }
  if (stream.capture != nullptr) {
    stream.capture->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.point == nullptr || event.point->reached) return cudaSuccess;
  PushOrdered(stream, [this, from = event.stream, point = event.point] {
    if (!point->reached) DrainUntil(*from, *point);
  });
  return cudaSuccess;
}

cudaStreamCaptureMode& ThreadCaptureMode() {
  static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

std::set<std::shared_ptr<Capture>> Streams::ActiveCaptures() const {
  std::set<std::shared_ptr<Capture>> captures;
  for (const auto& [handle, stream] : streams_)
    if (stream->capture != nullptr) captures.insert(stream->capture);
  return captures;
}

cudaError_t Streams::RefuseUnsafeCall() {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : ActiveCaptures()) {
    const bool own =
        capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool global = capture->mode == cudaStreamCaptureModeGlobal;
    const cudaStreamCaptureMode mode = ThreadCaptureMode();
    if (mode == cudaStreamCaptureModeRelaxed) continue;
    if (!own && !(global && mode == cudaStreamCaptureModeGlobal)) continue;
    capture->invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t Streams::RefuseWaitingForAll() {
  const auto captures = ActiveCaptures();
  for (const auto& capture : captures) capture->invalidated = true;
  return captures.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

cudaError_t Streams::RefuseWaiting(CUstream_st& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  if (stream.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  stream.capture->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t Streams::BeginCapture(CUstream_st& stream, cudaStreamCaptureMode mode) {
  if (&stream == &null_stream_) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture != nullptr) return cudaErrorIllegalState;
  stream.capture = std::make_shared<Capture>();
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  stream.capture->origin = &stream;
  return cudaSuccess;
}

cudaError_t Streams::EndCapture(CUstream_st& stream, CUgraph_st** graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  for (const auto& [handle, other] : streams_)
    if (other->capture == capture) other->capture.reset();
  if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (!capture->unjoined.empty()) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{std::move(capture->operations)};
  return cudaSuccess;
}

}  // namespace weir::emulator
