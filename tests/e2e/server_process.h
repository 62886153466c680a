// The two programs as a user starts them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {

// weir-server over one tiny model of each kind, on a free port.
class ServerProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModelOptions options;
    WriteTinyModel(linear_.path(), options);
    options.mixer = "softmax";
    WriteTinyModel(softmax_.path(), options);
    server_ = std::make_unique<Process>(std::vector<std::string>{
        WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0", "--model", "linear=" + linear_.path(), "--model",
        "softmax=" + softmax_.path(), "--slots", "8", "--kv-memory", "16MiB", "--threads", "1",
        // A turn of 20,000 tokens under a sanitizer on a busy machine takes longer than the default.
        "--drain-timeout", "5m"});
    const std::string log = server_->ReadUntil("ready");
    const size_t at = log.find("127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << log;
    address_ = log.substr(at, log.find_first_not_of("0123456789", at + 10) - at);
  }
  std::vector<std::string> Weir(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {WEIR_CLIENT_BINARY, "--server", address_});
    return arguments;
  }
  // Output and exit code of one command.
  std::pair<std::string, int> Run(std::vector<std::string> arguments) const {
    Process process(Weir(std::move(arguments)));
    const int code = process.Wait();
    return {process.output(), code};
  }

  TempDir linear_, softmax_;
  std::unique_ptr<Process> server_;
  std::string address_;
};

}  // namespace weir::testing
