// Every RPC of weir.v1 can be called from the command, which answers in JSON.
#include <filesystem>
#include <map>
#include <sstream>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/child.h"
#include "tests/client/scripted_server.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::IsEmpty;
using Methods = std::map<std::string, const google::protobuf::MethodDescriptor*>;

// By full name. The folder is read, so that a new file is not forgotten.
Methods AllMethods() {
  Methods methods;
  for (const auto& entry : std::filesystem::directory_iterator(WEIR_SOURCE_DIR "/proto/weir/v1")) {
    const std::string name = "weir/v1/" + entry.path().filename().string();
    const auto* const file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    if (file == nullptr) {
      ADD_FAILURE() << name << " is not linked";
      continue;
    }
    for (int i = 0; i < file->service_count(); ++i)
      for (int j = 0; j < file->service(i)->method_count(); ++j)
        methods[file->service(i)->method(j)->full_name()] = file->service(i)->method(j);
  }
  return methods;
}

TEST(Reach, EveryRpcHasACommandThatAnswersInJson) {
  const testing::TempDir dir;
  const std::string file = dir.Write("session", "some bytes");
  const std::map<std::string, std::vector<std::string>> commands = {
      {"weir.v1.Generation.Generate", {"generate", "hi"}},
      {"weir.v1.Models.Detokenize", {"detokenize", "1"}},
      {"weir.v1.Models.GetModel", {"models", "get", "m"}},
      {"weir.v1.Models.ListModels", {"models", "list"}},
      {"weir.v1.Models.Score", {"score", "hi"}},
      {"weir.v1.Models.Tokenize", {"tokenize", "hi"}},
      {"weir.v1.Server.GetServerInfo", {"info"}},
      {"weir.v1.Sessions.AppendSession", {"sessions", "append", "s", "hi"}},
      {"weir.v1.Sessions.CreateSession", {"sessions", "create"}},
      {"weir.v1.Sessions.CreateSnapshot", {"sessions", "snapshot", "s"}},
      {"weir.v1.Sessions.DeleteSession", {"sessions", "delete", "s"}},
      {"weir.v1.Sessions.DeleteSnapshot", {"sessions", "delete", "sessions/s/snapshots/p"}},
      {"weir.v1.Sessions.ExportSession", {"sessions", "export", "s", dir.File("copy")}},
      {"weir.v1.Sessions.ForkSession", {"sessions", "fork", "s"}},
      {"weir.v1.Sessions.GetSession", {"sessions", "get", "s"}},
      {"weir.v1.Sessions.GetSnapshot", {"sessions", "get", "sessions/s/snapshots/p"}},
      {"weir.v1.Sessions.ImportSession", {"sessions", "import", file}},
      {"weir.v1.Sessions.ListSessions", {"sessions", "list"}},
      {"weir.v1.Sessions.ListSnapshots", {"sessions", "snapshots", "s"}},
      {"weir.v1.Sessions.RollbackSession", {"sessions", "rollback", "s", "p"}},
      {"weir.v1.Sessions.UpdateSession", {"sessions", "update", "s", "--ttl", "1h"}},
  };
  const Methods methods = AllMethods();
  EXPECT_EQ(methods.size(), commands.size());
  for (const auto& [name, method] : methods) {
    SCOPED_TRACE(name);
    const auto command = commands.find(name);
    if (command == commands.end()) {
      ADD_FAILURE() << "no command calls it";
      continue;
    }
    ScriptedServer server;
    server.export_pieces = {"some bytes"};
    std::vector<std::string> arguments = {"--server", server.address(), "--json"};
    arguments.insert(arguments.end(), command->second.begin(), command->second.end());
    const ChildResult result = RunWeir(arguments);
    EXPECT_EQ(result.exit, 0);
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_TRUE(server.Received(method->input_type()->full_name()));
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(nlohmann::json::parse(line, nullptr, false).is_object()) << line;
    const bool list = name.find(".List") != std::string::npos;  // nothing to print of an empty one
    EXPECT_EQ(result.out.empty(), list);
  }
}

}  // namespace
}  // namespace weir
