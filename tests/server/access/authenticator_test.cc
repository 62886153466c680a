// From metadata to an owner, or to a refusal with its reason.
#include "server/access/authenticator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

struct Alice {
  NewApiKey made = *MakeApiKey("alice");
  std::string bearer = "Bearer " + made.key;
  KeyRing Ring(const std::string& limits = "") const { return *KeyRing::Parse(made.line + " " + limits); }
};

std::string ReasonOf(const absl::StatusOr<Caller>& caller) { return GetErrorDetails(caller.status()).reason; }

TEST(Authenticator, AKeyHasItsNameAndLimit) {
  const Alice alice;
  Authenticator authenticator(alice.Ring("tokens=77"));
  const auto caller = authenticator.Admit({alice.bearer}, kStart);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->name, "alice");
  EXPECT_EQ(caller->max_request_tokens, 77);
  EXPECT_TRUE(authenticator.Admit({"bearer " + alice.made.key}, kStart).ok());
}

TEST(Authenticator, EverythingElseIsRefusedWithoutBeingRepeated) {
  const Alice alice;
  Authenticator authenticator(alice.Ring());
  const auto missing = authenticator.Admit({}, kStart);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ReasonOf(missing), "API_KEY_MISSING");
  const std::string other = "Bearer " + MakeApiKey("alice")->key;
  const std::string basic = "Basic " + alice.made.key;
  const std::string spaced = alice.bearer + " ";
  const std::string huge = "Bearer " + std::string(100'000, 'k');
  for (const std::vector<std::string_view>& wrong :
       std::vector<std::vector<std::string_view>>{{other},
                                                  {basic},
                                                  {spaced},
                                                  {huge},
                                                  {alice.made.key},
                                                  {"Bearer "},
                                                  {"Bearer"},
                                                  {""},
                                                  {alice.bearer, alice.bearer},
                                                  {alice.made.line}}) {
    const auto refused = authenticator.Admit(wrong, kStart);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ReasonOf(refused), "API_KEY_INVALID");
    EXPECT_THAT(refused.status().ToString(), Not(HasSubstr(alice.made.key)));
  }
}

TEST(Authenticator, TheRateIsTheOwnersWhicheverOfItsKeysIsUsed) {
  const Alice first, second, other;
  const std::string limits = " requests-per-second=1 burst=2\n";
  Authenticator authenticator(*KeyRing::Parse(first.made.line + limits + second.made.line + limits + "bob" +
                                              other.made.line.substr(5) + limits));
  EXPECT_TRUE(authenticator.Admit({first.bearer}, kStart).ok());
  EXPECT_TRUE(authenticator.Admit({second.bearer}, kStart).ok());
  const auto refused = authenticator.Admit({first.bearer}, kStart);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const ErrorDetails details = GetErrorDetails(refused.status());
  EXPECT_EQ(details.reason, "RATE_LIMITED");
  EXPECT_EQ(details.retry_after, absl::Seconds(1));
  EXPECT_TRUE(authenticator.Admit({other.bearer}, kStart).ok());
  EXPECT_TRUE(authenticator.Admit({first.bearer}, kStart + absl::Seconds(1)).ok());
}

TEST(Authenticator, ReplacedKeysHoldAtOnceAndRatesGoOn) {
  const Alice old_key, new_key;
  Authenticator authenticator(old_key.Ring("requests-per-second=1 burst=1"));
  EXPECT_TRUE(authenticator.Admit({old_key.bearer}, kStart).ok());
  authenticator.Replace(new_key.Ring("requests-per-second=1 burst=1 sessions=4"));
  EXPECT_EQ(ReasonOf(authenticator.Admit({old_key.bearer}, kStart)), "API_KEY_INVALID");
  EXPECT_EQ(ReasonOf(authenticator.Admit({new_key.bearer}, kStart)), "RATE_LIMITED");
  EXPECT_TRUE(authenticator.Admit({new_key.bearer}, kStart + absl::Seconds(1)).ok());
  EXPECT_EQ(authenticator.LimitsOf("alice").sessions, 4);
}

}  // namespace
}  // namespace weir
