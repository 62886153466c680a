// What errors look like on the wire.
#include "server/grpc/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "runtime/base/error.h"
#include "server/frontend/violations.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::DetailOf;
using ::testing::HasSubstr;
using testing::ReasonOf;

TEST(Status, EveryErrorCarriesExactlyOneErrorInfoOfTheDomain) {
  for (int code = 1; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    const grpc::Status bare = ToGrpc(absl::Status(absl_code, "text"));
    EXPECT_EQ(bare.error_code(), code);
    EXPECT_EQ(ReasonOf(bare), absl::StatusCodeToString(absl_code));
    EXPECT_EQ(testing::RpcStatusOf(bare).code(), code);
    EXPECT_EQ(testing::RpcStatusOf(bare).message(), "text");
    EXPECT_EQ(ReasonOf(ToGrpc(MakeError(absl_code, "SOME_REASON", "text"))), "SOME_REASON");
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST(Status, DetailsFitTheCode) {
  const grpc::Status full =
      ToGrpc(MakeError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "the line is full",
                       {{"capacity", "64"}}, absl::Milliseconds(1500)));
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(full)->metadata().at("capacity"), "64");
  EXPECT_EQ(DetailOf<google::rpc::QuotaFailure>(full)->violations(0).description(), "the line is full");
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(full)->retry_delay().seconds(), 1);
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(full)->retry_delay().nanos(), 500'000'000);

  const grpc::Status unknown = ToGrpc(
      MakeError(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND", "no session", {{"session", "sessions/a"}}));
  EXPECT_EQ(DetailOf<google::rpc::ResourceInfo>(unknown)->resource_name(), "sessions/a");
  EXPECT_EQ(DetailOf<google::rpc::ResourceInfo>(unknown)->resource_type(), "weir.v1/Session");

  const grpc::Status foreign =
      ToGrpc(MakeError(absl::StatusCode::kFailedPrecondition, "SNAPSHOT_OF_ANOTHER_MODEL", "another model",
                       {{"model", "models/m"}}));
  EXPECT_EQ(DetailOf<google::rpc::PreconditionFailure>(foreign)->violations(0).type(),
            "SNAPSHOT_OF_ANOTHER_MODEL");
  EXPECT_EQ(DetailOf<google::rpc::PreconditionFailure>(foreign)->violations(0).subject(), "models/m");

  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(ToGrpc(absl::UnavailableError("draining"))).has_value());
  EXPECT_FALSE(DetailOf<google::rpc::QuotaFailure>(
                   ToGrpc(MakeError(absl::StatusCode::kResourceExhausted, "CLIENT_TOO_SLOW", "slow")))
                   .has_value());
}

TEST(Status, FieldViolationsTravelOnePerField) {
  FieldViolations violations;
  violations.Add("a", "first");
  violations.Add("b", "second");
  violations.Add("a", "again");
  const grpc::Status status = ToGrpc(violations.ToStatus());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 2);
  EXPECT_EQ(bad->field_violations(0).field(), "a");
  EXPECT_EQ(bad->field_violations(0).description(), "first");
  EXPECT_EQ(bad->field_violations(1).field(), "b");
  EXPECT_EQ(status.error_message(), "a: first; b: second");
}

TEST(Status, RPC_12_TextIsEscapedAndShort) {
  EXPECT_EQ(CleanText(std::string("a\0b\n\xff\xc3(", 7), 100), "a\\x00b\\x0a\\xff\\xc3(");
  EXPECT_EQ(CleanText("é … 😀", 100), "é … 😀");
  EXPECT_EQ(CleanText("\xe0\x80\x80\xed\xa0\x80\xf4\x90\x80\x80", 100),
            "\\xe0\\x80\\x80\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
  const grpc::Status huge = ToGrpc(absl::NotFoundError(std::string(1 << 20, '\xff')));
  EXPECT_LT(huge.error_message().size(), 1024u);
  EXPECT_THAT(huge.error_message(), HasSubstr("\\xff"));
}

TEST(Status, DetailsStayWithinWhatATrailerHolds) {
  FieldViolations violations;
  for (int i = 0; i < 1000; ++i) violations.Add("field" + std::to_string(i), std::string(500, 'x'));
  const grpc::Status many = ToGrpc(violations.ToStatus());
  EXPECT_LT(many.error_details().size(), 4096u);
  EXPECT_GT(DetailOf<google::rpc::BadRequest>(many)->field_violations_size(), 3);
  ErrorMetadata metadata;
  for (int i = 0; i < 1000; ++i) metadata.emplace_back("key" + std::to_string(i), std::string(10'000, 'v'));
  const grpc::Status wide = ToGrpc(MakeError(absl::StatusCode::kAborted, "REASON", "text", metadata));
  EXPECT_LT(wide.error_details().size(), 4096u);
  EXPECT_EQ(ReasonOf(wide), "REASON");
}

}  // namespace
}  // namespace weir
