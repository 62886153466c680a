// weir loadtest against weir-server: two processes, as its users have them.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"

namespace weir::testing {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class LoadtestProcess : public ServerProcess {
 protected:
  // What the server says, summed over its models.
  int64_t Sum(const std::string& field) {
    const json info = json::parse(Run({"info", "--json"}).first);
    int64_t sum = 0;
    for (const json& use : info["server"]["models"]) sum += use[field].get<int64_t>();
    return sum;
  }
};

TEST_F(LoadtestProcess, ComparesRealModelsAndAgreesWithTheServer) {
  const auto [out, code] = Run({"loadtest", "--compare", "linear,softmax", "-c", "4", "-n", "24", "--turns",
                                "2", "--prompt-tokens", "3-20", "--output-tokens", "5-30", "--json", "-q",
                                "--fail-on-error", "--fail-on-empty"});
  EXPECT_EQ(code, 0) << out;
  const json report = json::parse(out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << out;
  int64_t tokens = 0;
  for (const json& model : report["models"]) {
    EXPECT_EQ(model["traffic"][0]["requests"]["completed"], 48);
    tokens += model["traffic"][0]["tokens"]["generated"].get<int64_t>();
  }
  EXPECT_EQ(tokens, Sum("generated_tokens"));
  EXPECT_EQ(Sum("sessions"), 0);
  EXPECT_EQ(Sum("slots_free"), Sum("slots_total"));
  EXPECT_EQ(report["models"][0]["state"]["kind"], "fixed");
  EXPECT_EQ(report["models"][1]["state"]["kind"], "paged");
}

TEST_F(LoadtestProcess, AServerThatDiesInTheMidstIsReportedWithWhatWasMeasured) {
  const TempDir dir;
  const std::string json_path = dir.File("r.json"), html_path = dir.File("r.html");
  Process loadtest(Weir({"loadtest", "-m", "linear", "-c", "4", "-d", "1h", "--output-tokens", "20", "-q",
                         "--json", json_path, "--html", html_path}));
  while (Sum("generated_tokens") < 1000) {
  }
  server_->Signal(SIGKILL);
  EXPECT_EQ(loadtest.Wait(), 3) << loadtest.output();
  const std::string& output = loadtest.output();
  EXPECT_THAT(output, HasSubstr("4 at once"));
  EXPECT_THAT(output,
              ContainsRegex("[0-9] CONNECTION_LOST: lost the connection to the Weir server at 127.0.0.1:"));
  EXPECT_THAT(output,
              ContainsRegex("weir: linear, 4 at once: lost the connection to the Weir server at "
                            "127.0.0.1:[0-9]+ after [0-9.]+ s; up to then [0-9]+ requests were completed "
                            "and [0-9]+ tokens came"));
  // Of gRPC's own words, and of the sources that they name, none.
  for (const char* raw : {"ocket", "recvmsg", "reset by peer", "failed to connect", "RST_STREAM", "grpc"})
    EXPECT_THAT(output, Not(HasSubstr(raw)));
  std::ifstream file(json_path);
  const json report = json::parse(file, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["passed"], false);
  EXPECT_GE(report["models"][0]["traffic"][0]["requests"]["completed"], 10);
  EXPECT_THAT(output, HasSubstr(report["failures"][0].get<std::string>()));
  EXPECT_GT(std::filesystem::file_size(html_path), 10'000u);
}

}  // namespace
}  // namespace weir::testing
