// RequestLog: a repeat runs nothing, and the log stays bounded.
#include "server/frontend/request_log.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace weir {
namespace {

class Log : public ::testing::Test {
 protected:
  // Whether the caller has to run it; its answer goes to answers_[name].
  bool Begin(const std::string& key, uint64_t body, const std::string& name) {
    return log_.Begin(
        key, body, [this, name](const absl::StatusOr<std::string>& answer) { answers_[name] = answer; },
        now_);
  }
  std::string Answer(const std::string& name) const {
    const auto it = answers_.find(name);
    if (it == answers_.end()) return "(none)";
    return it->second.ok() ? *it->second : GetErrorDetails(it->second.status()).reason;
  }

  int refused_as_full_ = 0;
  RequestLog log_{RequestLog::Limits{.max_requests = 3, .window = absl::Minutes(10)},
                  [this](const absl::Status&) { ++refused_as_full_; }};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::map<std::string, absl::StatusOr<std::string>> answers_;
};

TEST_F(Log, ARepeatGetsTheFirstAnswerWithoutRunning) {
  ASSERT_TRUE(Begin("k", 1, "first"));
  EXPECT_FALSE(Begin("k", 1, "meanwhile"));
  EXPECT_EQ(Answer("meanwhile"), "(none)");
  log_.End("k", std::string("answer"), true, now_);
  EXPECT_EQ(Answer("first"), "answer");
  EXPECT_EQ(Answer("meanwhile"), "answer");
  now_ += absl::Minutes(10) - absl::Nanoseconds(1);
  EXPECT_FALSE(Begin("k", 1, "late"));
  EXPECT_EQ(Answer("late"), "answer");
  now_ += absl::Nanoseconds(1);
  EXPECT_TRUE(Begin("k", 1, "too late"));
}

TEST_F(Log, AnotherBodyIsRefusedWhileItRunsAndAfterwards) {
  ASSERT_TRUE(Begin("k", 1, "first"));
  EXPECT_FALSE(Begin("k", 2, "other"));
  EXPECT_EQ(answers_["other"].status().code(), absl::StatusCode::kInvalidArgument);
  log_.End("k", std::string("answer"), true, now_);
  EXPECT_FALSE(Begin("k", 2, "again"));
  EXPECT_EQ(GetFieldViolations(answers_["again"].status())[0].field, "request_id");
  EXPECT_EQ(Answer("first"), "answer");
}

TEST_F(Log, AFailureWithoutEffectIsSharedAndThenForgotten) {
  ASSERT_TRUE(Begin("k", 1, "first"));
  EXPECT_FALSE(Begin("k", 1, "meanwhile"));
  log_.End("k", MakeError(absl::StatusCode::kAborted, "SESSION_BUSY", "busy"), false, now_);
  EXPECT_EQ(Answer("first"), "SESSION_BUSY");
  EXPECT_EQ(Answer("meanwhile"), "SESSION_BUSY");
  EXPECT_EQ(log_.size(), 0);
  EXPECT_TRUE(Begin("k", 1, "again"));
}

TEST_F(Log, TheOldestIsForgottenFirstAndWhatRunsNever) {
  ASSERT_TRUE(Begin("running", 1, "running"));
  for (const char* key : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(Begin(key, 1, key));
    log_.End(key, std::string(key), true, now_);
    now_ += absl::Seconds(1);
    EXPECT_LE(log_.size(), 3);
  }
  EXPECT_FALSE(Begin("running", 1, "repeat"));
  EXPECT_FALSE(Begin("d", 1, "d"));
  EXPECT_TRUE(Begin("a", 1, "a"));  // forgotten
  EXPECT_TRUE(Begin("x", 1, "x"));
  EXPECT_FALSE(Begin("y", 1, "y"));  // three run, which is all
  EXPECT_EQ(Answer("y"), "QUEUE_FULL");
  EXPECT_EQ(refused_as_full_, 1);
  log_.End("running", std::string("done"), true, now_);
  EXPECT_EQ(Answer("repeat"), "done");
}

TEST_F(Log, KeysTellOwnersApartAndUuidsNotByCase) {
  const std::string id = "0a1b2c3d-0000-4000-8000-00000000000f";
  EXPECT_NE(RequestLog::KeyOf(id, "alice"), RequestLog::KeyOf(id, "bob"));
  EXPECT_EQ(RequestLog::KeyOf("0A1B2C3D-0000-4000-8000-00000000000F", "bob"), RequestLog::KeyOf(id, "bob"));
  FieldViolations none;
  CheckRequestId("", &none);
  CheckRequestId(id, &none);
  EXPECT_TRUE(none.empty());
  for (const char* bad : {"x", "00000000-0000-0000-0000-000000000000", "0a1b2c3d000040008000-00000000000f",
                          "0a1b2c3d-0000-4000-8000-00000000000g", "0a1b2c3d-0000-4000-8000-00000000000f0"}) {
    FieldViolations violations;
    CheckRequestId(bad, &violations);
    EXPECT_FALSE(violations.empty()) << bad;
  }
}

}  // namespace
}  // namespace weir
