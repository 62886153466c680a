// Linked into a GoogleTest program: each test begins with fresh options and no reports, and a report that the
// test has not cleared, or device memory that it has not freed, is its failure.
#include <gtest/gtest.h>

#include "tests/cuda/emulator/emulator.h"

namespace weir::emulator {
namespace {

class ReportListener : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override { StartTest(); }
  void OnTestStart(const testing::TestInfo&) override {
    StartTest();
    bytes_before_ = LiveDeviceBytes();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    const size_t bytes = LiveDeviceBytes();
    if (Options().check_leaks && bytes > bytes_before_) {
      ADD_FAILURE() << bytes - bytes_before_ << " bytes of device memory are not freed";
      ReportLeaks();
    }
    for (const Report& report : Reports())
      ADD_FAILURE() << "the CUDA emulator reports (" << ReportName(report.kind) << ") " << report.text;
    ResetDevices();
    StartTest();
  }

  static void StartTest() {
    ResetOptions();
    Options().collect_reports = true;
    ClearReports();
  }

  size_t bytes_before_ = 0;
};

const bool is_registered = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ReportListener);
  return true;
}();

}  // namespace
}  // namespace weir::emulator
