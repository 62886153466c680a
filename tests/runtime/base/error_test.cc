#include "runtime/base/error.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/system_error.h"

namespace weir {
namespace {

TEST(Error, DetailsTravelWithTheStatus) {
  const absl::Status made = MakeError(absl::StatusCode::kAborted, "SESSION_BUSY", "busy",
                                      {{"position", "17"}, {"empty", ""}}, absl::Milliseconds(1500));
  const auto passed_on = [&]() -> absl::StatusOr<int> {
    WEIR_RETURN_IF_ERROR(made);
    return 1;
  };
  const ErrorDetails details = GetErrorDetails(passed_on().status());
  EXPECT_EQ(details.reason, "SESSION_BUSY");
  EXPECT_EQ(details.metadata, (ErrorMetadata{{"position", "17"}, {"empty", ""}}));
  EXPECT_EQ(details.retry_after, absl::Milliseconds(1500));
  EXPECT_EQ(GetErrorDetails(absl::InternalError("x")).reason, "");
}

TEST(Error, QuotedTextIsPrintableAndShort) {
  EXPECT_EQ(Quoted("abc"), "'abc'");
  EXPECT_EQ(Quoted("\xff\xc3(\n'"), "'\\xff\\xc3(\\x0a\\x27'");
  EXPECT_LT(Quoted(std::string(1 << 20, 'a')).size(), 200u);
  EXPECT_NE(Quoted(std::string(1 << 20, 'a')).find("1048576 bytes"), std::string::npos);
}

TEST(Error, AMissingRightNamesWhoLacksIt) {
  EXPECT_EQ(SystemErrorText(ENOENT), "No such file or directory");
  EXPECT_EQ(SystemErrorText(EACCES),
            fmt::format("Permission denied; this process is user {} of group {}", geteuid(), getegid()));
}

}  // namespace
}  // namespace weir
