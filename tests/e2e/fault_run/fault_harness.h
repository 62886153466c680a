// FaultRun: weir-server over the zoo's twins as a process, witnesses that talk to it, and what has to be as
// before when a fault is over.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "tests/e2e/fault_run/witness.h"
#include "tests/e2e/process.h"
#include "tests/support/temp_dir.h"

namespace weir::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// How many of what makes a fault; a tenth under sanitizers, where all takes ten times as long.
constexpr int Many(int count) { return kSanitized ? count / 10 : count; }

inline constexpr const char* kTwins[] = {"tales-linear", "tales-softmax"};
inline constexpr int kSlots = 64;
// Generous: whoever waits for so long waits in vain.
inline constexpr absl::Duration kPatience = absl::Seconds(120);

// What the allocator may not have been able to give back after a fault, of pieces that lie between others. A
// leak of 1 KiB for each of ten thousand streams is more.
inline constexpr int64_t kAllowance = int64_t{8} << 20;
// Until memory does not grow any more. What leaks, leaks each time.
inline constexpr int kMostRounds = 6;

struct EndureOptions {
  // Where a fault takes all there is, the witnesses may be told to come back.
  bool witnesses_may_wait = false;
};

class FaultRun : public ::testing::Test {
 protected:
  FaultRun();
  ~FaultRun() override;

  // The server with `options` (each a name and a value) and the usual ones, `environment` as NAME=VALUE;
  // returns when it is ready and the witnesses have talked alone.
  void StartServer(const std::vector<std::string>& options = {},
                   const std::vector<std::string>& environment = {});
  // Which twins, if not kTwins. Before StartServer.
  void Serve(std::vector<std::string> twins) { twins_ = std::move(twins); }
  // Where each twin is served from, if not from the zoo. Before StartServer.
  void ServeFrom(const std::string& folder) { models_ = folder; }

  // The fault with the witnesses talking: once to fill what is kept on purpose (threads, the allocator's
  // lists), then again until memory stays where it was. After each: every talk was to the bit the one that
  // the witness had alone, slots and blocks are all free again, no session, turn or snapshot is left, and no
  // descriptor.
  void Endure(const std::function<void()>& fault, const EndureOptions& options = {});
  // The parts of it, for faults that the server does not survive.
  void StartWitnesses(bool may_wait = false);
  void StopWitnesses();
  // Until each witness has ended `talks` more.
  void AwaitTalks(int talks) const;
  void ExpectAllIsFree();

  // What the witnesses were told when alone.
  std::vector<Testimony> Testimonies() const;

  // SIGTERM and exit status 0.
  void StopServer();

  WeirClient Connect() const;
  v1::ServerInfo Info() const;
  // A connection of its own, whatever else is connected.
  std::shared_ptr<grpc::Channel> NewChannel(grpc::ChannelArguments arguments = {}) const;
  // A turn of one of the twins that goes on for `tokens`.
  static v1::GenerateRequest Request(const std::string& model, int64_t tokens);
  // Whether a client that comes now is served.
  void ExpectServed() const;
  int port() const;
  std::string log() const;
  int64_t Descriptors() const;
  // Memory of its own, without files.
  int64_t ResidentBytes() const;
  // The most that it ever had at once.
  int64_t PeakBytes() const;

  TempDir dir_;
  std::unique_ptr<Process> server_;
  std::string address_;
  std::string listen_ = "127.0.0.1:0";
  std::string api_key_;  // of the clients

 private:
  std::vector<std::string> Command(const std::vector<std::string>& options,
                                   const std::vector<std::string>& environment) const;

  std::vector<std::string> twins_{std::begin(kTwins), std::end(kTwins)};
  std::string models_ = WEIR_SOURCE_DIR "/model/zoo";
  std::unique_ptr<WeirClient> control_;
  std::vector<std::unique_ptr<Witness>> witnesses_;
  int64_t descriptors_ = 0;  // before any fault
};

}  // namespace weir::testing
