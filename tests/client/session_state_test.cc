// weir sessions snapshot, snapshots, rollback, export, import, update; and the library's part in them.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/client.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "tests/client/child.h"
#include "tests/client/scripted_server.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TempDir;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

size_t FilesIn(const std::string& folder) {
  const auto files = std::filesystem::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

// The first bytes of an export file whose whole length is `size`.
std::string FileOf(size_t size) {
  std::string bytes(size, 'b');
  const uint32_t version = 2, header_bytes = 64;
  const auto body_bytes = static_cast<int64_t>(size) - 64 - 8;
  bytes.replace(0, 8, "WEIRSNAP");
  bytes.replace(8, 4, reinterpret_cast<const char*>(&version), 4);
  bytes.replace(12, 4, reinterpret_cast<const char*>(&header_bytes), 4);
  bytes.replace(16, 8, reinterpret_cast<const char*>(&body_bytes), 8);
  return bytes;
}

class StateCommands : public ::testing::Test {
 protected:
  ChildResult Try(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return RunWeir(arguments, input);
  }
  ChildResult Run(std::vector<std::string> arguments, const std::string& input = "") {
    const ChildResult result = Try(std::move(arguments), input);
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_EQ(result.exit, 0);
    return result;
  }
  template <class Message>
  void ExpectRequest(const std::string& expected_text) {
    Message expected;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(expected_text, &expected));
    const Message actual = server_.Last<Message>();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(actual, expected)) << actual.DebugString();
  }
  nlohmann::json Json(const std::string& text) { return nlohmann::json::parse(text, nullptr, false); }

  ScriptedServer server_;
  const TempDir folder_;
};

TEST_F(StateCommands, SnapshotPrintsTheNameAndSnapshotsFollowThePages) {
  EXPECT_EQ(Run({"sessions", "snapshot", "s", "--id", "one", "--etag", "e"}).out,
            "sessions/s/snapshots/one\n");
  ExpectRequest<v1::CreateSnapshotRequest>("parent: 'sessions/s' snapshot_id: 'one' etag: 'e'");
  EXPECT_EQ(server_.session_id(), "s");
  EXPECT_EQ(Json(Run({"sessions", "snapshot", "s", "--id", "one", "--json"}).out)["name"],
            "sessions/s/snapshots/one");
  server_.answers = {{"weir.v1.ListSnapshotsResponse",
                      "snapshots { name: 'sessions/s/snapshots/a' position: 7 state_bytes: 4096 } "
                      "next_page_token: 'more'"}};
  const std::string text = Run({"sessions", "snapshots", "s"}).out;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;  // a heading, two pages
  EXPECT_THAT(text, AllOf(HasSubstr("sessions/s/snapshots/a"), HasSubstr("4096")));
  ExpectRequest<v1::ListSnapshotsRequest>("parent: 'sessions/s' page_size: 1000 page_token: 'more'");
  const std::string json = Run({"sessions", "snapshots", "s", "--json"}).out;
  EXPECT_EQ(Json(json.substr(0, json.find('\n')))["position"], 7);
}

TEST_F(StateCommands, RollbackTakesIdsAndNames) {
  server_.answers = {{"weir.v1.Session", "name: 'sessions/s' position: 12"}};
  EXPECT_EQ(Run({"sessions", "rollback", "s", "one"}).out, "sessions/s is at position 12\n");
  ExpectRequest<v1::RollbackSessionRequest>("name: 'sessions/s' snapshot: 'sessions/s/snapshots/one'");
  Run({"sessions", "rollback", "sessions/s", "sessions/t/snapshots/one", "--etag", "e"});
  ExpectRequest<v1::RollbackSessionRequest>(
      "name: 'sessions/s' snapshot: 'sessions/t/snapshots/one' etag: 'e'");
  EXPECT_EQ(Json(Run({"sessions", "rollback", "s", "one", "--json"}).out)["position"], 12);
  EXPECT_EQ(Try({"sessions", "rollback", "s"}).exit, 2);
}

TEST_F(StateCommands, GetAndDeleteTakeSnapshotsToo) {
  server_.answers = {{"weir.v1.Snapshot", "name: 'sessions/s/snapshots/one' position: 7"}};
  EXPECT_THAT(Run({"sessions", "get", "sessions/s/snapshots/one"}).out, HasSubstr("position:      7"));
  ExpectRequest<v1::GetSnapshotRequest>("name: 'sessions/s/snapshots/one'");
  EXPECT_EQ(server_.session_id(), "s");
  Run({"sessions", "delete", "sessions/s/snapshots/one", "s"});
  ExpectRequest<v1::DeleteSnapshotRequest>("name: 'sessions/s/snapshots/one'");
  ExpectRequest<v1::DeleteSessionRequest>("name: 'sessions/s'");
}

TEST_F(StateCommands, UpdateSendsTheMask) {
  server_.answers = {{"weir.v1.Session", "name: 'sessions/s' expire_time { seconds: 1700000000 }"}};
  EXPECT_EQ(Run({"sessions", "update", "s", "--ttl", "1h"}).out,
            "sessions/s expires at 2023-11-14T22:13:20Z\n");
  ExpectRequest<v1::UpdateSessionRequest>(
      "session { name: 'sessions/s' ttl { seconds: 3600 } } update_mask { paths: 'ttl' }");
  EXPECT_EQ(server_.session_id(), "s");
  EXPECT_EQ(Try({"sessions", "update", "s"}).exit, 2);
  EXPECT_EQ(Try({"sessions", "update", "s", "--ttl", "-1s"}).exit, 2);
}

TEST_F(StateCommands, RequestIdsReachTheirField) {
  const std::string uuid = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";
  // The id of the session follows, so that a repeat is the same request.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Run({"sessions", "create", "--request-id", uuid}).out, "sessions/" + uuid + "\n");
    ExpectRequest<v1::CreateSessionRequest>("session_id: '" + uuid + "' session {} request_id: '" + uuid +
                                            "'");
  }
  server_.answers = {{"weir.v1.AppendSessionResponse", "appended_tokens: 4 session { position: 10 }"}};
  Run({"sessions", "append", "s", "more", "--request-id", uuid});
  ExpectRequest<v1::AppendSessionRequest>("name: 'sessions/s' prompt { text: 'more' } request_id: '" + uuid +
                                          "'");
}

TEST_F(StateCommands, ExportWritesTheWholeFileAtOnce) {
  server_.answers = {{"weir.v1.Session", "name: 'sessions/s' position: 12 export_bytes: 11"}};
  server_.export_pieces = {"first", std::string("\0\xff", 2), "last"};
  const std::string path = folder_.path() + "/s.weir";
  std::ofstream(path) << "an older one";
  EXPECT_EQ(Run({"sessions", "export", "s", path, "--etag", "e"}).out,
            "sessions/s at position 12: 11 bytes\n");
  ExpectRequest<v1::ExportSessionRequest>("name: 'sessions/s' etag: 'e'");
  EXPECT_EQ(ReadFile(path), std::string("first\0\xfflast", 11));
  EXPECT_EQ(FilesIn(folder_.path()), 1u);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(Json(Run({"sessions", "export", "s", path, "--json"}).out)["position"], 12);
  EXPECT_EQ(Run({"sessions", "export", "s", "-"}).out, std::string("first\0\xfflast", 11));
}

TEST_F(StateCommands, AnExportThatFailsLeavesNothing) {
  const std::string path = folder_.path() + "/s.weir";
  server_.export_pieces = {"first", "last"};
  server_.export_total = 100;
  ChildResult result = Try({"sessions", "export", "s", path});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, HasSubstr("91 bytes short"));
  server_.status = RichStatus(grpc::StatusCode::ABORTED, "SESSION_BUSY", "busy");
  result = Try({"sessions", "export", "s", path});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, HasSubstr("SESSION_BUSY"));
  EXPECT_EQ(FilesIn(folder_.path()), 0u);
  result = Try({"sessions", "export", "s", folder_.path() + "/none/s.weir"});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, HasSubstr("No such file or directory"));
}

TEST_F(StateCommands, AFullDiskLeavesNoHalfFileAndSaysSo) {
  server_.export_pieces = std::vector<std::string>(8, std::string(100'000, 'x'));
  ChildResult result = Try({"sessions", "export", "s", "/dev/full"});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, HasSubstr("No space left on device"));
  // A limit on the size of files stands for a full file system.
  rlimit old = {}, small = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = {.rlim_cur = 250'000, .rlim_max = old.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string path = folder_.path() + "/s.weir";
  result = Try({"sessions", "export", "s", path});
  const std::string older = folder_.path() + "/older.weir";
  std::ofstream(older) << "older";
  const ChildResult over = Try({"sessions", "export", "s", older});
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("File too large"), HasSubstr("nothing was left there")));
  EXPECT_EQ(over.exit, 1);
  EXPECT_THAT(over.err, AllOf(HasSubstr("File too large"), HasSubstr("the older file is still there"),
                              Not(HasSubstr("nothing was left"))));
  EXPECT_EQ(FilesIn(folder_.path()), 1u);
  std::string kept;
  std::ifstream(older) >> kept;
  EXPECT_EQ(kept, "older");
}

TEST_F(StateCommands, ImportSendsTheFileInPieces) {
  const std::string bytes = FileOf(3'000'000);
  const TempFile file(bytes);
  EXPECT_EQ(
      Run({"sessions", "import", file.path(), "--id", "new", "-m", "lin", "--ttl", "1h", "--timeout", "60"})
          .out,
      "sessions/new\n");
  ExpectRequest<v1::ImportSessionRequest>(
      "session_id: 'new' session { model: 'models/lin' ttl { seconds: 3600 } } total_bytes: 3000000");
  EXPECT_TRUE(server_.imported.Get() == bytes);
  EXPECT_EQ(server_.session_id(), "new");
  server_.imported = std::string();
  const std::string name = Run({"sessions", "import", "-"}, bytes).out;
  EXPECT_EQ(name.size(), std::string("sessions/\n").size() + 32);
  EXPECT_TRUE(server_.imported.Get() == bytes);
  EXPECT_EQ(server_.Last<v1::ImportSessionRequest>().total_bytes(), 3'000'000);
  EXPECT_EQ(Json(Run({"sessions", "import", file.path(), "--id", "new", "--json"}).out)["name"],
            "sessions/new");
}

TEST_F(StateCommands, AnImportThatCannotBeSaysWhy) {
  EXPECT_EQ(Try({"sessions", "import", folder_.path() + "/none"}).exit, 2);
  const TempFile empty("");
  EXPECT_EQ(Try({"sessions", "import", empty.path()}).exit, 2);
  ChildResult result = Try({"sessions", "import", "-"}, "some text that is longer than a prefix");
  EXPECT_EQ(result.exit, 2);
  EXPECT_THAT(result.err, HasSubstr("no exported session"));
  // A refusal while there is much left to send is the server's, not a broken pipe.
  server_.import_refusal =
      RichStatus(grpc::StatusCode::FAILED_PRECONDITION, "SNAPSHOT_MISMATCH", "another model made it");
  const TempFile large(FileOf(20'000'000));
  result = Try({"sessions", "import", large.path()});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("another model made it"), HasSubstr("SNAPSHOT_MISMATCH")));
  server_.import_refusal =
      RichStatus(grpc::StatusCode::RESOURCE_EXHAUSTED, "SNAPSHOT_MEMORY_EXHAUSTED", "no room");
  EXPECT_EQ(Try({"sessions", "import", large.path()}).exit, 5);
}

TEST_F(StateCommands, GetShowsBothPrices) {
  server_.answers = {
      {"weir.v1.Session", "name: 'sessions/s' state_bytes: 111 export_bytes: 222 snapshot_bytes: 333"}};
  EXPECT_THAT(Run({"sessions", "get", "s"}).out,
              AllOf(HasSubstr("111"), HasSubstr("222"), HasSubstr("333 bytes")));
}

TEST_F(StateCommands, ErrorsOfTheCallersCallbacksEndACall) {
  const absl::StatusOr<WeirClient> client = WeirClient::Connect(server_.address());
  ASSERT_TRUE(client.ok());
  server_.export_pieces = std::vector<std::string>(50, std::string(100'000, 'x'));
  v1::ExportSessionRequest request;
  request.set_name("sessions/s");
  int pieces = 0;
  const absl::Status out =
      client
          ->ExportSession(request,
                          [&](std::string_view) {
                            return ++pieces < 3 ? absl::OkStatus() : absl::UnknownError("enough");
                          })
          .status();
  EXPECT_EQ(out.message(), "enough");
  EXPECT_EQ(pieces, 3);
  v1::ImportSessionRequest start;
  start.set_total_bytes(10);
  const absl::Status in =
      client
          ->ImportSession(start,
                          []() -> absl::StatusOr<std::string> { return absl::UnknownError("cannot read"); })
          .status();
  EXPECT_EQ(in.message(), "cannot read");
}

}  // namespace
}  // namespace weir
