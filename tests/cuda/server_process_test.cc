// weir-server on a GPU, as an operator starts it: what it says of the device, and how it ends when that is
// lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/e2e/process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EmulatedServer : public ::testing::Test {
 protected:
  // `fail_kernel` "": none does.
  void Start(const char* fail_kernel, DType dtype = DType::kF32) {
    TinyModelOptions options;
    options.dtype = dtype;
    WriteTinyModel(model_.path(), options);
    setenv("EMULATOR_FAIL_KERNEL", fail_kernel, 1);
    if (*fail_kernel == '\0') unsetenv("EMULATOR_FAIL_KERNEL");
    const std::vector<std::string> command = {WEIR_EMULATED_SERVER_BINARY,
                                              "--listen",
                                              "127.0.0.1:0",
                                              "--model",
                                              "tiny=" + model_.path(),
                                              "--device",
                                              "cuda:0",
                                              "--slots",
                                              "1",
                                              "--max-step-tokens",
                                              "65",
                                              "--threads",
                                              "1"};
    server_ = std::make_unique<Process>(command);
    unsetenv("EMULATOR_FAIL_KERNEL");
    log_ = server_->ReadUntil("ready");
    const size_t at = log_.find("127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << log_;
    address_ = log_.substr(at, log_.find_first_not_of("0123456789", at + 10) - at);
  }
  std::pair<std::string, int> Weir(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {WEIR_CLIENT_BINARY, "--server", address_});
    Process process(arguments);
    const int code = process.Wait();
    return {process.output(), code};
  }

  TempDir model_;
  std::unique_ptr<Process> server_;
  std::string log_, address_;
};

TEST_F(EmulatedServer, NamesTheDeviceAndEndsLikeAnyOther) {
  Start("", DType::kBF16);
  EXPECT_THAT(log_, HasSubstr("device cuda:0: Emulated GPU, 2147483648 bytes of memory"));
  EXPECT_THAT(log_, HasSubstr("bf16 products on cuda:0: by Weir's own kernels, as cuBLASLt cannot be used"));
  EXPECT_THAT(log_, HasSubstr("on cuda:0"));
  EXPECT_THAT(Weir({"info"}).first, AllOf(HasSubstr("cuda:0"), HasSubstr("on the device")));
  const auto [text, code] =
      Weir({"generate", "-m", "tiny", "--max-tokens", "5", "--temperature", "0", "abc"});
  EXPECT_EQ(code, 0) << text;
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
}

// A load test's witness of the device, by the driver's count: what a state of constant size keeps there is
// not moved by tokens.
TEST_F(EmulatedServer, SaysWhatIsInUseOfTheDevice) {
  Start("");
  const std::string file = model_.File("report.json");
  const auto [text, code] = Weir(
      {"loadtest", "--positions", "64,320", "--sessions", "1", "--itl-tokens", "2", "--json", file, "-q"});
  EXPECT_EQ(code, 1) << "so few tokens decide nothing: " << text;
  std::ifstream in(file);
  const nlohmann::json report = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << text;
  const nlohmann::json& growth = report["models"][0]["growth"];
  ASSERT_EQ(growth["points"].size(), 2u) << text;
  const int64_t used = growth["points"][0]["device_bytes"];
  EXPECT_GE(used, growth["points"][0]["arena_bytes"].get<int64_t>());
  for (const nlohmann::json& sample : growth["samples"]) EXPECT_EQ(sample["device"], used);
  EXPECT_EQ(growth["slope"]["device"]["bytes_per_token"], 0);
  EXPECT_THAT(text, HasSubstr("  device "));
}

TEST_F(EmulatedServer, ALostDeviceTellsTheStreamAndEndsTheProcess) {
  Start("150");  // after the start, which runs each kernel once for the recording
  const auto [text, code] =
      Weir({"generate", "-m", "tiny", "--max-tokens", "100000", "--ignore-eos", "--temperature", "0", "abc"});
  EXPECT_NE(code, 0);
  EXPECT_THAT(text, HasSubstr("the device has failed"));
  EXPECT_THAT(text, HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_EQ(server_->Wait(), 6) << server_->output();
  EXPECT_THAT(server_->output(), HasSubstr("the device has failed"));
}

}  // namespace
}  // namespace weir::testing
