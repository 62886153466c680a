#include "runtime/base/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(Address, HasHostAndPort) {
  struct Case {
    const char* text;
    const char* host;
    std::optional<int> port;
  };
  for (const Case& c : {Case{"gpu1", "gpu1", std::nullopt},
                        {"127.0.0.1:0", "127.0.0.1", 0},
                        {"gpu1.example.org:65535", "gpu1.example.org", 65535},
                        {"[::1]", "::1", std::nullopt},
                        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80}}) {
    const auto address = ParseAddress(c.text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, c.host);
    EXPECT_EQ(address->port, c.port);
    EXPECT_EQ(address->path, "");
  }
}

TEST(Address, OfAUnixSocketIsItsPath) {
  const auto address = ParseAddress("unix:/run/weir.sock");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->path, "/run/weir.sock");
  EXPECT_EQ(address->host, "");
  EXPECT_TRUE(ParseAddress("unix:" + std::string(107, 'x')).ok());
  EXPECT_FALSE(ParseAddress("unix:" + std::string(108, 'x')).ok());
}

TEST(Address, SaysWhatIsWrong) {
  for (const auto& [text, why] : {std::pair<const char*, const char*>{"", "no host"},
                                  {":7070", "no host"},
                                  {"unix:", "no socket"},
                                  {"127.0.0.1:99999", "0 to 65535"},
                                  {"127.0.0.1:65536", "0 to 65535"},
                                  {"127.0.0.1:99999999999", "0 to 65535"},
                                  {"127.0.0.1:-1", "0 to 65535"},
                                  {"127.0.0.1:+1", "0 to 65535"},
                                  {"127.0.0.1:abc", "0 to 65535"},
                                  {"127.0.0.1:", "0 to 65535"},
                                  {"http://gpu1:7070", "0 to 65535"},
                                  {"[::1]:x", "0 to 65535"},
                                  {"[::1", "bracket"},
                                  {"[gpu1]:80", "IPv6"},
                                  {"[::1]80", "bracket"},
                                  {"::1", "without brackets"},
                                  {"fe80::1:7070", "without brackets"}}) {
    const absl::Status status = ParseAddress(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << text;
  }
}

}  // namespace
}  // namespace weir
