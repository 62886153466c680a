#include "model/config/json_parse.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<nlohmann::json> ParsePython(std::string_view text) {
  return ParseJson(text, "config.json", {.allow_nonfinite = true});
}

TEST(JsonParse, BuildsTheSameTreeAsTheLibrary) {
  const std::string text = R"({"a":[1,-2,3.5,[],{}],"b":{"c":null,"d":true,"e":)"
                           R"("x\"\\\u00e9"},"f":18446744073709551615,"":{"":[[""]]}})";
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text, "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, nlohmann::json::parse(text));
  for (std::string_view scalar : {"1", "\"s\"", "null", "false", "[]"}) {
    EXPECT_EQ(*ParseJson(scalar, "t"), nlohmann::json::parse(scalar));
  }
}

TEST(JsonParse, LOD_13_BareInfinityAndNanAreRead) {
  const absl::StatusOr<nlohmann::json> parsed =
      ParsePython(R"({"limit":[0.0, Infinity],"low":-Infinity,"nan":[NaN,NaN],"plain":[0.001,0.1]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["limit"][0], 0.0);
  EXPECT_EQ((*parsed)["limit"][1].get<double>(), INFINITY);
  EXPECT_EQ((*parsed)["low"].get<double>(), -INFINITY);
  EXPECT_TRUE(std::isnan((*parsed)["nan"][1].get<double>()));
  EXPECT_EQ((*parsed)["plain"][1].get<double>(), 0.1);
  EXPECT_EQ(ParsePython("Infinity")->get<double>(), INFINITY);
}

TEST(JsonParse, LOD_13_StringsAndKeysAreUntouched) {
  const absl::StatusOr<nlohmann::json> parsed =
      ParsePython(R"({"NaN":"Infinity and NaN","q":"\"Infinity","s":"\\",)"
                  R"("Infinity":[-Infinity,"-Infinity"],"t":"x: NaN, "})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["NaN"], "Infinity and NaN");
  EXPECT_EQ((*parsed)["q"], "\"Infinity");
  EXPECT_EQ((*parsed)["s"], "\\");
  EXPECT_EQ((*parsed)["Infinity"][0].get<double>(), -INFINITY);
  EXPECT_EQ((*parsed)["Infinity"][1], "-Infinity");
  EXPECT_EQ((*parsed)["t"], "x: NaN, ");
}

TEST(JsonParse, LOD_13_NumbersThatLookLikeTheMarkersStayNumbers) {
  const absl::StatusOr<nlohmann::json> parsed =
      ParsePython(R"({"a":7.250,"b":[Infinity,7.2500,8.25,-7.25000,"7.25000"],"c":[NaN,8.250]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["a"].get<double>(), 7.25);
  EXPECT_EQ((*parsed)["b"][0].get<double>(), INFINITY);
  EXPECT_EQ((*parsed)["b"][1].get<double>(), 7.25);
  EXPECT_EQ((*parsed)["b"][3].get<double>(), -7.25);
  EXPECT_EQ((*parsed)["c"][1].get<double>(), 8.25);
}

TEST(JsonParse, LOD_13_OnlyWholeWordsOutsideStringsCount) {
  for (std::string_view text :
       {"[xInfinity]", "[Infinityx]",  "[1Infinity]",  "[Infinity1]",   "[--Infinity]",
        "[+Infinity]", "[1.Infinity]", "[Infinity.5]", "[1e-Infinity]", "[1eInfinity]",
        "[-NaN]",      "[NaNNaN]",     "[nan]",        "[infinity]",    "[Inf]",
        "[Infinity",   "{Infinity:1}", "[\"Infinity]", "[0Infinity]",   "[- Infinity]"}) {
    EXPECT_FALSE(ParsePython(text).ok()) << text;
  }
  EXPECT_FALSE(ParseJson("[Infinity]", "t").ok());  // not unless it is allowed
  EXPECT_FALSE(ParseJson("[1e999]", "t").ok());
}

TEST(JsonParse, DuplicateKeysAreRefusedAtEveryLevel) {
  for (std::string_view text :
       {R"({"a":1,"a":1})", R"([{"x":{"a":1,"b":2,"a":3}}])", R"({"a":{},"\u0061":{}})"}) {
    const absl::Status status = ParseJson(text, "config.json").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("config.json is not valid JSON: key 'a' is there twice"));
  }
  EXPECT_TRUE(ParseJson(R"([{"a":1},{"a":{"a":2}}])", "t").ok());
}

TEST(JsonParse, DepthAndSizeAreLimited) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(ParseJson(deep, "t").ok());
  EXPECT_THAT(std::string(ParseJson("[" + deep + "]", "t").status().message()), HasSubstr("64 levels"));
  EXPECT_FALSE(ParseJson(std::string(10'000'000, '['), "t").ok());
  EXPECT_THAT(std::string(ParseJson("[1, 2]", "t", {.max_bytes = 5}).status().message()),
              HasSubstr("at most 5"));
}

TEST(JsonParse, FaultsAreDescribedShortlyAndInUtf8) {
  const std::string broken = "{\"" + std::string(100'000, 'k') + "\xff";
  const absl::Status status = ParseJson(broken, "config.json").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_LT(status.message().size(), 400u);
  for (std::string_view text :
       {"", " ", "{", "{\"a\":}", "[1,]", "{\"a\" 1}", "// x\n{}", "{} {}", "[01]", "\"\x01\""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJson(text, "t").status())) << text;
  }
}

}  // namespace
}  // namespace weir
