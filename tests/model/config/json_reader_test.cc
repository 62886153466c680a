#include "model/config/json_reader.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ConfigReader Reader(std::string_view text) { return ConfigReader::Parse(text, "config.json").value(); }

// The message of an INVALID_ARGUMENT, which must name the file.
template <class T>
std::string Refusal(const absl::StatusOr<T>& result) {
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("config.json"));
  return std::string(result.status().message());
}

TEST(ConfigReader, IntegersHaveTypeAndRange) {
  const ConfigReader reader =
      Reader(R"({"n":12,"neg":-3,"f":12.0,"s":"12","b":true,"big":18446744073709551615,"null":null})");
  EXPECT_EQ(reader.Int("n", 1, 12).value(), 12);
  EXPECT_EQ(reader.Int("neg", -3, 0).value(), -3);
  EXPECT_EQ(reader.Int("absent", 0, 9, 7).value(), 7);
  EXPECT_EQ(reader.Int("null", 0, 9, 7).value(), 7);
  EXPECT_EQ(reader.OptionalInt("absent", 0, 9).value(), std::nullopt);
  EXPECT_THAT(Refusal(reader.Int("n", 1, 11)),
              AllOf(HasSubstr("'n' is 12"), HasSubstr("an integer from 1 to 11")));
  EXPECT_THAT(Refusal(reader.Int("neg", 0, 9)), HasSubstr("-3"));
  EXPECT_THAT(Refusal(reader.Int("absent", 0, 9)), HasSubstr("'absent' is missing; an integer from 0 to 9"));
  EXPECT_THAT(Refusal(reader.Int("null", 0, 9)), HasSubstr("missing"));
  for (std::string_view key : {"f", "s", "b", "big"}) {
    Refusal(reader.Int(key, INT64_MIN, INT64_MAX));
    Refusal(reader.Int(key, INT64_MIN, INT64_MAX, 1));
  }
}

TEST(ConfigReader, FloatsAdmitIntegersButNoNan) {
  const ConfigReader reader =
      Reader(R"({"f":0.5,"i":2,"inf":Infinity,"ninf":-Infinity,"nan":NaN,"s":"0.5"})");
  EXPECT_EQ(reader.Float("f", 0, 1).value(), 0.5);
  EXPECT_EQ(reader.Float("i", 0, 2).value(), 2.0);
  EXPECT_EQ(reader.Float("absent", 0, 1, 0.25).value(), 0.25);
  EXPECT_EQ(reader.Float("inf", 0, INFINITY).value(), INFINITY);
  EXPECT_EQ(reader.Float("ninf", -INFINITY, 0).value(), -INFINITY);
  EXPECT_THAT(Refusal(reader.Float("inf", 0, 1e300)), HasSubstr("'inf' is inf"));
  EXPECT_THAT(Refusal(reader.Float("nan", -INFINITY, INFINITY)), HasSubstr("'nan' is nan"));
  EXPECT_THAT(Refusal(reader.Float("f", 0.6, 1)), AllOf(HasSubstr("0.5"), HasSubstr("from 0.6 to 1")));
  EXPECT_THAT(Refusal(reader.Float("s", 0, 1)), HasSubstr("'0.5'"));
  EXPECT_THAT(Refusal(reader.Float("absent", 0, 1)), HasSubstr("missing"));
}

TEST(ConfigReader, LOD_13_TimeStepLimitOfPythonConfigs) {
  const ConfigReader reader =
      Reader(R"({"time_step_limit":[0.0, Infinity],"other":[0.001, 0.1],"note":"Infinity and NaN"})");
  EXPECT_THAT(reader.FloatList("time_step_limit", 0, INFINITY).value(), ElementsAre(0.0, INFINITY));
  EXPECT_THAT(reader.FloatList("other", 0, INFINITY).value(), ElementsAre(0.001, 0.1));
  EXPECT_EQ(reader.String("note").value(), "Infinity and NaN");
  EXPECT_THAT(
      Refusal(Reader(R"({"time_step_limit":[0.0,-Infinity]})").FloatList("time_step_limit", 0, INFINITY)),
      AllOf(HasSubstr("time_step_limit[1]"), HasSubstr("-inf")));
}

TEST(ConfigReader, BooleansStringsAndChoices) {
  const ConfigReader reader = Reader(R"({"t":true,"n":1,"s":"silu","l":[]})");
  EXPECT_TRUE(reader.Bool("t").value());
  EXPECT_TRUE(reader.Bool("absent", true).value());
  EXPECT_FALSE(reader.Bool("absent", false).value());
  EXPECT_THAT(Refusal(reader.Bool("n", false)), HasSubstr("true or false"));
  EXPECT_THAT(Refusal(reader.Bool("absent")), HasSubstr("missing"));
  EXPECT_EQ(reader.String("s").value(), "silu");
  EXPECT_EQ(reader.String("absent", "x").value(), "x");
  EXPECT_THAT(Refusal(reader.String("n")), HasSubstr("a string"));
  constexpr std::string_view kChoices[] = {"gelu", "silu"};
  constexpr std::string_view kOthers[] = {"gelu", "relu"};
  EXPECT_EQ(reader.Enum("s", kChoices).value(), "silu");
  EXPECT_EQ(reader.Enum("absent", kChoices, "gelu").value(), "gelu");
  EXPECT_THAT(Refusal(reader.Enum("s", kOthers)), AllOf(HasSubstr("'silu'"), HasSubstr("one of gelu, relu")));
  EXPECT_THAT(Refusal(reader.Enum("s", kOthers, "gelu")), HasSubstr("one of gelu, relu"));
  EXPECT_THAT(Refusal(reader.Enum("l", kOthers)), HasSubstr("a list of 0"));
}

TEST(ConfigReader, ListsNameTheElement) {
  const ConfigReader reader = Reader(R"({"i":[1,2,30],"mixed":[1,"x"],"s":["a","b"],"n":1})");
  EXPECT_THAT(reader.IntList("i", 0, 30).value(), ElementsAre(1, 2, 30));
  EXPECT_THAT(Refusal(reader.IntList("i", 0, 29)), AllOf(HasSubstr("'i[2]'"), HasSubstr("30")));
  EXPECT_THAT(Refusal(reader.IntList("n", 0, 9)), HasSubstr("a list"));
  EXPECT_THAT(Refusal(reader.FloatList("mixed", 0, 9)), HasSubstr("'mixed[1]'"));
  EXPECT_THAT(reader.StringList("s").value(), ElementsAre("a", "b"));
  EXPECT_THAT(Refusal(reader.StringList("mixed")), HasSubstr("'mixed[0]'"));
  EXPECT_TRUE(reader.IsList("i"));
  EXPECT_FALSE(reader.IsList("n"));
}

TEST(ConfigReader, UnreadKeysAreReportedWithNestedOnes) {
  const ConfigReader reader = Reader(
      R"({"a":1,"b":2,"rope":{"type":"linear","factor":2,"deep":{"x":1}},"unopened":{"y":1},"n":null})");
  EXPECT_THAT(reader.UnreadKeys(), ElementsAre("a", "b", "n", "rope", "unopened"));
  const ConfigReader copy = reader;
  EXPECT_TRUE(copy.Int("a", 0, 9).ok());
  EXPECT_FALSE(copy.Has("n"));
  const std::optional<ConfigReader> rope = reader.Object("rope").value();
  ASSERT_TRUE(rope.has_value());
  EXPECT_EQ(rope->String("type").value(), "linear");
  EXPECT_THAT(reader.UnreadKeys(), ElementsAre("b", "rope.deep", "rope.factor", "unopened"));
  EXPECT_THAT(rope->UnreadKeys(), ElementsAre("rope.deep", "rope.factor"));
  EXPECT_THAT(Refusal(rope->Int("factor", 5, 9)), HasSubstr("'rope.factor' is 2"));
  EXPECT_EQ(reader.Object("n").value().has_value(), false);
  EXPECT_THAT(Refusal(reader.Object("a")), HasSubstr("an object"));
}

TEST(ConfigReader, NestedReadersKeepTheFileAlive) {
  std::optional<ConfigReader> inner;
  { inner = Reader(R"({"o":{"x":5}})").Object("o").value(); }
  EXPECT_EQ(inner->Int("x", 0, 9).value(), 5);
}

TEST(ConfigReader, FilesAreCheckedBeforeUse) {
  testing::TempDir dir;
  EXPECT_TRUE(absl::IsNotFound(ConfigReader::Load(dir.File("config.json")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ConfigReader::Load(dir.path()).status()));
  for (std::string_view text : {"[]", "1", "", R"({"a":1,"a":2})"}) {
    Refusal(ConfigReader::Load(dir.Write("config.json", text)));
  }
  EXPECT_THAT(Refusal(ConfigReader::Load(dir.Write("config.json", std::string((16 << 20) + 1, ' ')))),
              HasSubstr("16777217 bytes"));
  const std::string path = dir.Write("config.json", R"({"x":[]})");
  const absl::StatusOr<ConfigReader> reader = ConfigReader::Load(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->source(), path);
  EXPECT_THAT(reader->FloatList("x", 0, 1).value(), IsEmpty());
}

}  // namespace
}  // namespace weir
