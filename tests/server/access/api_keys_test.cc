// The file of keys: what it may hold, and that nothing of a key gets out.
#include "server/access/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// SHA-256 of "abc", as FIPS 180-2 gives it.
constexpr char kAbc[] = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string Refusal(const std::string& text) {
  const auto ring = KeyRing::Parse(text);
  EXPECT_FALSE(ring.ok()) << text;
  return std::string(ring.status().message());
}

TEST(ApiKeys, AMadeKeyIsFoundByItsLineAndNoOtherIs) {
  const auto made = MakeApiKey("alice");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->key.size(), 5u + 64u);
  EXPECT_THAT(made->line, Not(HasSubstr(made->key.substr(5))));
  EXPECT_NE(MakeApiKey("alice")->key, made->key);
  const auto ring = KeyRing::Parse("# team\n\n" + made->line + "  # laptop\n");
  ASSERT_TRUE(ring.ok()) << ring.status();
  ASSERT_NE(ring->Find(made->key), nullptr);
  EXPECT_EQ(ring->Find(made->key)->name, "alice");
  for (const std::string& wrong :
       {std::string(), made->key + "x", made->key.substr(1), MakeApiKey("alice")->key, made->line})
    EXPECT_EQ(ring->Find(wrong), nullptr);
  EXPECT_FALSE(MakeApiKey("two words").ok());
  EXPECT_FALSE(MakeApiKey("").ok());
}

TEST(ApiKeys, HashesAreSha256) {
  const auto ring = KeyRing::Parse(std::string("x ") + kAbc);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_NE(ring->Find("abc"), nullptr);
}

TEST(ApiKeys, LimitsAreRead) {
  const auto ring = KeyRing::Parse(
      std::string("a ") + kAbc +
      " sessions=3 state-bytes=2MiB requests-per-second=0.5 tokens=100\r\nb sha256:" + std::string(64, '0') +
      "\tburst=7 requests-per-second=2.5\n");
  ASSERT_TRUE(ring.ok()) << ring.status();
  const KeyLimits a = ring->LimitsOf("a"), b = ring->LimitsOf("b");
  EXPECT_EQ(a.sessions, 3);
  EXPECT_EQ(a.state_bytes, 2 << 20);
  EXPECT_EQ(a.requests_per_second, 0.5);
  EXPECT_EQ(a.burst, 1);
  EXPECT_EQ(a.tokens, 100);
  EXPECT_EQ(b.burst, 7);
  EXPECT_EQ(b.sessions, 0);
  EXPECT_EQ(ring->LimitsOf("c"), KeyLimits());
}

TEST(ApiKeys, OneOwnerMayHaveSeveralKeys) {
  const std::string other = "sha256:" + std::string(64, '1');
  const auto ring = KeyRing::Parse(std::string("a ") + kAbc + " tokens=5\na " + other + " tokens=5\n");
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->Find("abc")->name, "a");
  EXPECT_THAT(Refusal(std::string("a ") + kAbc + " tokens=5\na " + other), HasSubstr("different limits"));
  EXPECT_THAT(Refusal(std::string("a ") + kAbc + "\nb " + kAbc), HasSubstr("line 2: b has the key of a"));
}

TEST(ApiKeys, FaultsNameTheLineAndNeverQuoteIt) {
  const std::string secret = "weir_topsecret0123456789topsecret0123456789topsecret0123456789topsecret";
  for (const std::string& line :
       {secret, "alice " + secret, std::string("alice ") + kAbc + " " + secret, secret + "=" + secret,
        std::string("alice ") + kAbc + " tokens=" + secret, "alice=" + secret}) {
    const std::string refusal = Refusal("# fine\n" + line + "\n");
    EXPECT_THAT(refusal, HasSubstr("line 2"));
    EXPECT_THAT(refusal, Not(HasSubstr("topsecret")));
  }
  const std::string a = std::string("a ") + kAbc;
  EXPECT_THAT(Refusal(a + " speed=1"), HasSubstr("no limit"));
  for (const char* limit : {"sessions=0", "sessions=-1", "sessions=1x", "sessions=", "sessions",
                            "state-bytes=50%", "requests-per-second=inf", "requests-per-second=nan",
                            "burst=0.5", "burst=3", "tokens=1.5", "tokens=99999999999999999999"})
    Refusal(a + " " + limit);
  EXPECT_THAT(Refusal("a sha256:12"), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(Refusal("a sha256:" + std::string(64, 'g')), HasSubstr("64 hexadecimal"));
  EXPECT_THAT(Refusal("# nothing\n"), HasSubstr("holds no key"));
  EXPECT_THAT(Refusal(std::string("a\0b ", 4) + kAbc), HasSubstr("line 1"));
}

TEST(ApiKeys, FilesThatCannotBeReadAreNamed) {
  testing::TempDir dir;
  const auto refusal = [](const std::string& path) {
    return std::string(KeyRing::Read(path).status().message());
  };
  EXPECT_THAT(refusal(dir.File("none")), HasSubstr(dir.File("none")));
  EXPECT_THAT(refusal(dir.path()), HasSubstr("no regular file"));
  EXPECT_THAT(refusal(dir.Write("bad", "?\n")), HasSubstr(dir.File("bad")));
  EXPECT_THAT(refusal(dir.Write("big", std::string(KeyRing::kMaxFileBytes + 1, '#'))), HasSubstr("over"));
}

}  // namespace
}  // namespace weir
