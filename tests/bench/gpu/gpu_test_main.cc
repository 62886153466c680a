// weir-gpu-test: the tests of operations, engine and whole decoders on a GPU. GoogleTest's options. To be run
// at the top of a checkout, where models and recorded values are.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "fmt/format.h"
#include "runtime/device/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    const auto device = weir::CreateDevice("cuda:0");
    if (!device.ok()) {
      fmt::print(stderr, "weir-gpu-test: {}\n", std::string(device.status().message()));
      return 2;
    }
    if (!std::filesystem::exists("tests/golden")) {
      fmt::print(stderr, "weir-gpu-test: no tests/golden here; run it at the top of a checkout of Weir\n");
      return 2;
    }
    fmt::print("{}\n", (*device)->Description());
  }
  return RUN_ALL_TESTS();
}
