// ExportSession and ImportSession over a real socket: chunks, refusals, and clients that stop half-way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Answer;
using testing::FakeModel;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::ReasonOf;
using testing::ServerFixture;
using Stub = v1::Sessions::Stub;

constexpr size_t kMessage = size_t{1} << 20;

struct Exported {
  grpc::Status status;
  v1::Session session;
  int64_t total_bytes = 0;
  std::string bytes;
  int messages = 0;
  size_t largest_message = 0;  // all of it, in bytes
};

Exported Export(ServerFixture& fixture, const std::string& id, const std::string& etag = "") {
  grpc::ClientContext context;
  v1::ExportSessionRequest request;
  request.set_name("sessions/" + id);
  request.set_etag(etag);
  auto reader = fixture.sessions().ExportSession(&context, request);
  Exported exported;
  v1::ExportSessionResponse message;
  while (reader->Read(&message)) {
    if (exported.messages++ == 0) {
      exported.session = message.session();
      exported.total_bytes = message.total_bytes();
    } else {
      EXPECT_FALSE(message.has_session());
    }
    EXPECT_LE(message.data().size(), kMessage);
    exported.largest_message = std::max(exported.largest_message, message.ByteSizeLong());
    exported.bytes += message.data();
  }
  exported.status = reader->Finish();
  return exported;
}

struct ImportOptions {
  std::string model = {};
  int64_t total_bytes = -1;  // -1: the truth
  size_t piece = kMessage;
};

grpc::Status Import(ServerFixture& fixture, const std::string& id, const std::string& bytes,
                    const ImportOptions& options = {}, v1::Session* session = nullptr) {
  grpc::ClientContext context;
  v1::Session own;
  auto writer = fixture.sessions().ImportSession(&context, session ? session : &own);
  v1::ImportSessionRequest message;
  message.set_session_id(id);
  if (!options.model.empty()) message.mutable_session()->set_model(options.model);
  message.set_total_bytes(options.total_bytes < 0 ? static_cast<int64_t>(bytes.size()) : options.total_bytes);
  size_t at = 0;
  do {
    message.set_data(bytes.substr(at, options.piece));
    at += options.piece;
    if (!writer->Write(message)) break;
    message.Clear();
  } while (at < bytes.size());
  writer->WritesDone();
  return writer->Finish();
}

std::vector<testing::ServedModel> Models(int64_t ballast = 0,
                                         absl::Duration step_time = absl::ZeroDuration()) {
  std::vector<testing::ServedModel> models;
  models.push_back(
      testing::MakeServedFake("fake", {.step_time = step_time, .ballast_floats = ballast}, {.slots = 4}));
  return models;
}

void Create(ServerFixture& fixture, const std::string& id, const std::string& model = "") {
  grpc::ClientContext context;
  v1::CreateSessionRequest request;
  request.set_session_id(id);
  request.mutable_session()->set_model(model);
  v1::Session session;
  const grpc::Status status = fixture.sessions().CreateSession(&context, request, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

Answer Turn(ServerFixture& fixture, const std::string& id, const std::vector<int32_t>& prompt, int64_t n) {
  v1::GenerateRequest request = GreedyRequest(prompt, n);
  request.set_session("sessions/" + id);
  return Generate(fixture.generation(), request);
}

bool Busy(ServerFixture& fixture, const std::string& id) {
  grpc::ClientContext context;
  v1::GetSessionRequest request;
  request.set_name("sessions/" + id);
  v1::Session session;
  EXPECT_TRUE(fixture.sessions().GetSession(&context, request, &session).ok());
  return session.busy();
}

TEST(Transfer, ASessionMovesToAnotherServerAndGoesOn) {
  ServerFixture from(Models()), to(Models());
  Create(from, "s");
  const Answer first = Turn(from, "s", {1, 2, 3}, 20);
  const Exported exported = Export(from, "s");
  ASSERT_TRUE(exported.status.ok()) << exported.status.error_message();
  EXPECT_EQ(exported.session.position(), 23);
  EXPECT_EQ(exported.total_bytes, static_cast<int64_t>(exported.bytes.size()));
  EXPECT_EQ(exported.total_bytes, exported.session.export_bytes());
  EXPECT_EQ(exported.bytes.substr(0, 8), "WEIRSNAP");
  v1::Session session;
  const grpc::Status status = Import(to, "t", exported.bytes, {}, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(session.name(), "sessions/t");
  EXPECT_EQ(session.position(), 23);
  EXPECT_THAT(session.recent_token_ids(), ::testing::ElementsAreArray(exported.session.recent_token_ids()));
  EXPECT_TRUE(Export(to, "t").bytes == exported.bytes);
  EXPECT_EQ(Turn(to, "t", {9}, 30).token_ids, Turn(from, "s", {9}, 30).token_ids);
  EXPECT_TRUE(testing::WaitFor([&] { return to.engine().snapshot_budget().used() == 0; }));
  EXPECT_EQ(Import(to, "t", exported.bytes).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ReasonOf(Export(from, "s", "stale").status), "ETAG_MISMATCH");
  EXPECT_EQ(Export(from, "nobody").status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Transfer, SES_12_ExportLeavesTheSessionAsItIs) {
  ServerFixture fixture(Models());
  Create(fixture, "s");
  Turn(fixture, "s", {1, 2, 3}, 20);
  const Exported once = Export(fixture, "s");
  EXPECT_TRUE(Export(fixture, "s", once.session.etag()).bytes == once.bytes);
}

TEST(Transfer, LargeStatesTravelInSmallMessages) {
  ServerFixture fixture(Models(5 << 20));
  Create(fixture, "s");
  Turn(fixture, "s", {1, 2, 3}, 20);
  const Exported exported = Export(fixture, "s");
  ASSERT_TRUE(exported.status.ok());
  EXPECT_GT(exported.bytes.size(), size_t{20} << 20);
  EXPECT_EQ(exported.messages, 21);
  EXPECT_EQ(Import(fixture, "big", exported.bytes + "x").error_code(), grpc::StatusCode::DATA_LOSS);
  ASSERT_TRUE(Import(fixture, "t", exported.bytes).ok());
  ASSERT_TRUE(Import(fixture, "u", exported.bytes, {.piece = 100'000}).ok());
  EXPECT_EQ(Turn(fixture, "t", {9}, 30).token_ids, Turn(fixture, "u", {9}, 30).token_ids);
  EXPECT_TRUE(testing::WaitFor([&] { return fixture.engine().snapshot_budget().used() == 0; }));
}

// 24,903,680 bytes, six times what one message to a stock client may have: a state of 24 layers and 16 heads.
TEST(Transfer, RPC_08_AStateOf24MillionBytesMovesUnderStockMessageLimits) {
  constexpr int64_t kStateBytes = 24'903'680;
  constexpr int64_t kHashBytes = 8;  // the model's own
  ServerFixture from(Models((kStateBytes - kHashBytes) / 4)), to(Models((kStateBytes - kHashBytes) / 4));
  Create(from, "s");
  Turn(from, "s", {1, 2, 3}, 20);
  {
    grpc::ClientContext context;
    v1::CreateSnapshotRequest request;
    request.set_parent("sessions/s");
    request.set_snapshot_id("point");
    v1::Snapshot snapshot;
    ASSERT_TRUE(from.sessions().CreateSnapshot(&context, request, &snapshot).ok());
    EXPECT_GE(snapshot.state_bytes(), kStateBytes);
  }
  const Exported exported = Export(from, "s");
  ASSERT_TRUE(exported.status.ok()) << exported.status.error_message();
  EXPECT_GT(static_cast<int64_t>(exported.bytes.size()), kStateBytes);
  // Export looked at the data; here is the message around it.
  EXPECT_LT(exported.largest_message, kMessage + 1024);
  ASSERT_TRUE(Import(to, "t", exported.bytes, {.piece = kMessage - 1}).ok());
  const std::vector<int32_t> next = Turn(from, "s", {9}, 30).token_ids;
  EXPECT_EQ(Turn(to, "t", {9}, 30).token_ids, next);
  grpc::ClientContext context;
  v1::RollbackSessionRequest request;
  request.set_name("sessions/s");
  request.set_snapshot("sessions/s/snapshots/point");
  v1::Session session;
  ASSERT_TRUE(from.sessions().RollbackSession(&context, request, &session).ok());
  EXPECT_EQ(session.position(), 23);
  EXPECT_EQ(Turn(from, "s", {9}, 30).token_ids, next);
}

// Above the longest text the server's own answer, above the largest message the transport's; both name the
// limit.
TEST(Transfer, RPC_08_APromptOfFiveMegabytesIsRefusedWithTheLimitInTheText) {
  v1::GenerateRequest request = GreedyRequest({}, 1);
  request.mutable_prompt()->set_text(std::string(5'000'000, 'x'));
  ServerFixture fixture;
  const grpc::Status too_long = Generate(fixture.generation(), request).status;
  EXPECT_EQ(too_long.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(too_long.error_message(),
            "prompt.text: has 5000000 bytes; this server takes at most 4194304 at once");
  testing::FixtureOptions options;
  options.server.max_message_bytes = 1 << 20;
  ServerFixture narrow(options);
  const grpc::Status too_large = Generate(narrow.generation(), request).status;
  EXPECT_EQ(too_large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(too_large.error_message(), HasSubstr("1048576"));
  // The connection goes on.
  EXPECT_TRUE(Generate(narrow.generation(), GreedyRequest({1}, 3)).status.ok());
}

TEST(Transfer, WhatDoesNotFitIsRefusedWithItsReason) {
  std::vector<testing::ServedModel> two = Models();
  two.push_back(testing::MakeServedFake("big", {.ballast_floats = 100}, {.slots = 4}));
  two[1].engine.weights_fingerprint = 2;
  ServerFixture fixture(std::move(two));
  Create(fixture, "s", "models/big");
  Turn(fixture, "s", {1, 2, 3}, 20);
  const std::string good = Export(fixture, "s").bytes;
  v1::Session session;
  ASSERT_TRUE(Import(fixture, "t", good, {}, &session).ok());
  EXPECT_EQ(session.model(), "models/big");  // found by its fingerprint
  const grpc::Status other = Import(fixture, "u", good, {.model = "models/fake"});
  EXPECT_EQ(other.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(testing::DetailOf<google::rpc::PreconditionFailure>(other)->violations(0).type(),
            "SNAPSHOT_MISMATCH");
  EXPECT_THAT(other.error_message(), HasSubstr("ballast"));
  EXPECT_EQ(Import(fixture, "u", good, {.model = "models/none"}).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Import(fixture, "../u", good).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Import(fixture, "u", good, {.total_bytes = 0}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  std::string version = good;
  version[8] = 1;
  EXPECT_EQ(Import(fixture, "u", version).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  const auto size = static_cast<int64_t>(good.size());
  for (const int64_t lie : {int64_t{1}, size - 1, size + 1, int64_t{1} << 60})
    EXPECT_EQ(ReasonOf(Import(fixture, "u", good, {.total_bytes = lie})), "STATE_CORRUPT") << lie;
  for (const size_t at : {size_t{0}, size_t{20}, size_t{2000}, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    EXPECT_EQ(ReasonOf(Import(fixture, "u", bad)), "STATE_CORRUPT") << at;
  }
  EXPECT_EQ(ReasonOf(Import(fixture, "u", good.substr(0, good.size() - 1), {.total_bytes = size})),
            "STATE_CORRUPT");
  EXPECT_TRUE(testing::WaitFor([&] { return fixture.engine().snapshot_budget().used() == 0; }));
  EXPECT_TRUE(Export(fixture, "t").bytes == good);
  EXPECT_TRUE(testing::WaitFor([&] { return fixture.engine().Stats()[1].slots_free == 2; }));
}

TEST(Transfer, MessagesThatBreakTheProtocolAreRefused) {
  ServerFixture fixture(Models(1 << 20));
  Create(fixture, "s");
  const std::string good = Export(fixture, "s").bytes;
  EXPECT_EQ(Import(fixture, "u", good, {.piece = kMessage + 1}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::Session session;
  {
    grpc::ClientContext context;
    auto writer = fixture.sessions().ImportSession(&context, &session);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  grpc::ClientContext context;
  auto writer = fixture.sessions().ImportSession(&context, &session);
  v1::ImportSessionRequest message;
  message.set_session_id("u");
  message.set_total_bytes(static_cast<int64_t>(good.size()));
  writer->Write(message);
  writer->Write(message);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Transfer, AnImportWithoutRoomNamesTheBytes) {
  testing::FixtureOptions options;
  options.engine.snapshot_memory = 3 << 20;
  ServerFixture from(Models(1 << 20)), small(Models(1 << 20), options);
  Create(from, "s");
  const std::string good = Export(from, "s").bytes;
  const grpc::Status refused = Import(small, "t", good);
  EXPECT_EQ(ReasonOf(refused), "SNAPSHOT_MEMORY_EXHAUSTED");
  const auto& reasons = Rejections::kReasons;
  const auto reason =
      std::find(reasons.begin(), reasons.end(), "SNAPSHOT_MEMORY_EXHAUSTED") - reasons.begin();
  EXPECT_EQ(small.engine().metrics().rejections.count(static_cast<size_t>(reason)), 1);
  EXPECT_TRUE(testing::DetailOf<google::rpc::QuotaFailure>(refused).has_value());
  for (int i = 0; i < 3; ++i) Create(from, "more" + std::to_string(i));
  EXPECT_EQ(ReasonOf(Import(from, "t", good)), "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_TRUE(testing::WaitFor([&] { return from.engine().snapshot_budget().used() == 0; }));
}

class Stalls : public ::testing::Test {
 protected:
  Stalls()
      : fixture_(Models(8 << 20), [] {
          testing::FixtureOptions options;
          // Long enough for a busy machine's export of this state to be no stall.
          options.server.stuck_write = absl::Milliseconds(1500);
          return options;
        }()) {
    Create(fixture_, "s");
    Turn(fixture_, "s", {1, 2, 3}, 20);
  }
  ServerFixture fixture_;
};

TEST_F(Stalls, AnUploaderThatStopsOrVanishesGivesItsMemoryBack) {
  const std::string good = Export(fixture_, "s").bytes;
  v1::Session session;
  for (const bool vanish : {false, true}) {
    grpc::ClientContext context;
    auto writer = fixture_.sessions().ImportSession(&context, &session);
    v1::ImportSessionRequest message;
    message.set_session_id("t");
    message.set_total_bytes(static_cast<int64_t>(good.size()));
    message.set_data(good.substr(0, kMessage));
    ASSERT_TRUE(writer->Write(message));
    ASSERT_TRUE(testing::WaitFor([&] { return fixture_.engine().snapshot_budget().used() > 1 << 20; }));
    if (vanish) context.TryCancel();
    const grpc::Status status = writer->Finish();
    if (!vanish) EXPECT_EQ(ReasonOf(status), "CLIENT_TOO_SLOW");
    EXPECT_TRUE(testing::WaitFor([&] { return fixture_.engine().snapshot_budget().used() == 0; }));
  }
  EXPECT_TRUE(testing::WaitFor([&] { return fixture_.server().live_streams() == 0; }));
  ASSERT_TRUE(Import(fixture_, "t", good).ok());
}

TEST_F(Stalls, ATrickleIsNoProgress) {
  const std::string good = Export(fixture_, "s").bytes;
  v1::Session session;
  grpc::ClientContext context;
  auto writer = fixture_.sessions().ImportSession(&context, &session);
  v1::ImportSessionRequest message;
  message.set_session_id("t");
  message.set_total_bytes(static_cast<int64_t>(good.size()));
  size_t at = 0;
  for (; at < good.size(); ++at) {
    message.set_data(good.substr(at, 1));
    if (!writer->Write(message)) break;
    message.Clear();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_LT(at, good.size());
  EXPECT_EQ(ReasonOf(writer->Finish()), "CLIENT_TOO_SLOW");
}

TEST_F(Stalls, ADownloaderThatStopsOrVanishesLeavesTheSessionFree) {
  const Exported whole = Export(fixture_, "s");
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  const std::string& good = whole.bytes;
  for (const bool vanish : {false, true}) {
    grpc::ClientContext context;
    v1::ExportSessionRequest request;
    request.set_name("sessions/s");
    auto reader = fixture_.sessions().ExportSession(&context, request);
    v1::ExportSessionResponse message;
    ASSERT_TRUE(reader->Read(&message)) << reader->Finish().error_message();
    EXPECT_TRUE(Busy(fixture_, "s"));
    EXPECT_EQ(ReasonOf(Turn(fixture_, "s", {1}, 1).status), "SESSION_BUSY");
    if (vanish) context.TryCancel();
    EXPECT_TRUE(testing::WaitFor([&] { return !Busy(fixture_, "s"); }));
    while (reader->Read(&message)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(testing::WaitFor([&] { return fixture_.server().live_streams() == 0; }));
  EXPECT_TRUE(Export(fixture_, "s").bytes == good);
}

// SCH: copies of large states and streams go on side by side, and nobody's tokens change.
TEST(Transfer, StreamsGoOnWhileStatesAreCopied) {
  ServerFixture fixture(Models(4 << 20));
  Create(fixture, "s");
  Turn(fixture, "s", {1, 2, 3}, 20);
  const std::string good = Export(fixture, "s").bytes;
  std::atomic<bool> stop{false};
  std::thread copier([&] {
    for (int i = 0; !stop.load() || i < 3; ++i) {
      EXPECT_TRUE(Export(fixture, "s").bytes == good);
      EXPECT_TRUE(Import(fixture, "t", good).ok());
      grpc::ClientContext context;
      v1::DeleteSessionRequest remove;
      remove.set_name("sessions/t");
      google::protobuf::Empty nothing;
      EXPECT_TRUE(fixture.sessions().DeleteSession(&context, remove, &nothing).ok());
    }
  });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(Generate(fixture.generation(), GreedyRequest({i}, 300)).token_ids,
              FakeModel::Generate({i}, 300, testing::kByteVocab));
  stop.store(true);
  copier.join();
}

TEST(Transfer, ADrainingServerLetsSessionsLeaveAndNoneCome) {
  ServerFixture fixture(Models());
  Create(fixture, "s");
  Turn(fixture, "s", {1, 2, 3}, 20);
  const std::string good = Export(fixture, "s").bytes;
  fixture.server().Drain();
  EXPECT_TRUE(Export(fixture, "s").bytes == good);
  EXPECT_EQ(Import(fixture, "t", good).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// An export that is open when the server stops ends with a status, and so does a copy that waits.
TEST(Transfer, StoppingAnswersWhatIsUnderWay) {
  auto fixture = std::make_unique<ServerFixture>(Models(8 << 20));
  Create(*fixture, "s");
  grpc::ClientContext context;
  v1::ExportSessionRequest request;
  request.set_name("sessions/s");
  auto reader = fixture->sessions().ExportSession(&context, request);
  v1::ExportSessionResponse message;
  ASSERT_TRUE(reader->Read(&message));
  std::thread stopper([&] { fixture->server().Shutdown(absl::Now()); });
  while (reader->Read(&message)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
  stopper.join();
}

}  // namespace
}  // namespace weir
