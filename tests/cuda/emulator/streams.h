// Streams, events and captures. Work waits in its stream until something waits for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace weir::emulator {

using Operation = std::function<void()>;

// What is recorded between cudaStreamBeginCapture and cudaStreamEndCapture. One sequence for all streams of
// the capture: the order in which work was given is one of the orders that its graph allows.
struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUstream_st* origin = nullptr;
  bool invalidated = false;
  std::vector<Operation> operations;
  // Streams that joined by waiting for an event, while the origin has not waited for their last work.
  std::set<CUstream_st*> unjoined;
};

// The point of a stream that an event records.
struct EventPoint {
  bool reached = false;
  double milliseconds = 0;  // on a steady clock, when it was reached
};

}  // namespace weir::emulator

struct CUstream_st {
  std::deque<weir::emulator::Operation> queue;
  bool waits_for_null_stream = true;
  std::shared_ptr<weir::emulator::Capture> capture;
  uint64_t captured = 0;  // operations given during captures
};

struct CUevent_st {
  CUstream_st* stream = nullptr;  // of the last record; touched only until the point is reached
  std::shared_ptr<weir::emulator::EventPoint> point;  // null before the first record
  std::weak_ptr<weir::emulator::Capture> capture;     // the last record was captured
  uint64_t captured = 0;                              // the stream's count then
  bool timed = true;
};

struct CUgraph_st {
  std::vector<weir::emulator::Operation> operations;
};
struct CUgraphExec_st {
  std::vector<weir::emulator::Operation> operations;
  bool uploaded = false;
};

namespace weir::emulator {

class Streams {
 public:
  static Streams& Get();

  CUstream_st* Create(unsigned flags);
  void Destroy(CUstream_st* stream);
  // Null for a handle that is no stream.
  CUstream_st* Find(cudaStream_t handle);
  bool IsNullStream(const CUstream_st* stream) const { return stream == &null_stream_; }

  CUevent_st* CreateEvent(unsigned flags);
  bool DestroyEvent(CUevent_st* event) { return events_.erase(event) > 0; }
  bool IsEvent(CUevent_st* event) const { return events_.count(event) > 0; }
  cudaError_t Record(CUevent_st& event, CUstream_st& stream);
  cudaError_t WaitFor(CUstream_st& stream, CUevent_st& event);

  // Work with the device: does nothing once there is a sticky error.
  cudaError_t Enqueue(CUstream_st& stream, Operation operation);
  void Drain(CUstream_st& stream);
  void DrainUntil(CUstream_st& stream, const EventPoint& point);
  void RunNext(CUstream_st& stream);
  void DrainAll();
  // Forgets queued work and captures.
  void DropAll();

  // cudaSuccess, or the error of a call that no stream may be capturing at; the captures are then invalid.
  cudaError_t RefuseUnsafeCall();
  cudaError_t RefuseWaitingForAll();
  // The same for waiting for one stream or its events.
  cudaError_t RefuseWaiting(CUstream_st& stream);

  cudaError_t BeginCapture(CUstream_st& stream, cudaStreamCaptureMode mode);
  cudaError_t EndCapture(CUstream_st& stream, CUgraph_st** graph);

 private:
  void PushOrdered(CUstream_st& stream, Operation operation);
  std::set<std::shared_ptr<Capture>> ActiveCaptures() const;

  CUstream_st null_stream_;
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams_;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events_;
};

// How the calling thread takes captures of others: cudaThreadExchangeStreamCaptureMode.
cudaStreamCaptureMode& ThreadCaptureMode();

}  // namespace weir::emulator
