// Reading files: folders, configuration, post-processors, damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

nlohmann::json WithTemplate() {
  nlohmann::json file = SmallFile({"h", "i", "<s>", "</s>", "<", "s", ">"});
  file["added_tokens"] = {Added(2, "<s>", true), Added(3, "</s>", true)};
  const nlohmann::json special = {{"<s>", {{"id", "<s>"}, {"ids", {2}}, {"tokens", {"<s>"}}}}};
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", special}};
  return file;
}

TEST(Load, TOK_12_TheTemplateAddsItsTokenOnceAndOnlyWhenAsked) {
  const auto tokenizer = MustLoad(WithTemplate());
  Tokenizer::EncodeOptions options;
  options.parse_special = true;
  EXPECT_THAT(Encoded(*tokenizer, "hi", options), ElementsAre(0, 1));
  EXPECT_THAT(Encoded(*tokenizer, "<s>hi", options), ElementsAre(2, 0, 1));
  options.add_special_tokens = true;
  EXPECT_THAT(Encoded(*tokenizer, "hi", options), ElementsAre(2, 0, 1));
  // The rule for both: two, as the reference does.
  EXPECT_THAT(Encoded(*tokenizer, "<s>hi", options), ElementsAre(2, 2, 0, 1));
  EXPECT_THAT(Encoded(*tokenizer, "", options), ElementsAre(2));
  // A later append to the same session: no template by default.
  Tokenizer::EncodeOptions append;
  append.continuation = true;
  EXPECT_THAT(Encoded(*tokenizer, "hi", append), ElementsAre(0, 1));
}

TEST(Load, TemplatesCanEndTheTextAndStandInSequences) {
  nlohmann::json file = WithTemplate();
  nlohmann::json with_end = file["post_processor"];
  with_end["single"].push_back({{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}});
  with_end["special_tokens"]["</s>"] = {{"id", "</s>"}, {"ids", {3}}, {"tokens", {"</s>"}}};
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, with_end}}};
  Tokenizer::EncodeOptions options;
  options.add_special_tokens = true;
  EXPECT_THAT(Encoded(*MustLoad(file), "hi", options), ElementsAre(2, 0, 1, 3));
}

TEST(Load, BrokenPostProcessorsAreRefused) {
  nlohmann::json file = WithTemplate();
  file["post_processor"]["special_tokens"]["<s>"]["ids"] = {77};
  EXPECT_THAT(LoadError(file), HasSubstr("id 77 has no token"));
  file["post_processor"]["special_tokens"] = nlohmann::json::object();
  EXPECT_THAT(LoadError(file), HasSubstr("no ids for \"<s>\""));
  file["post_processor"]["single"] = nlohmann::json::array();
  EXPECT_THAT(LoadError(file), HasSubstr("exactly once"));
  file["post_processor"] = {{"type", "BertProcessing"}};
  EXPECT_THAT(LoadError(file), HasSubstr("BertProcessing"));
}

TEST(Load, ConfigNamesTheEndsOfText) {
  const auto tokenizer = MustLoad(
      WithTemplate(), R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null})");
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->eos_id(), 3);
  EXPECT_EQ(MustLoad(WithTemplate())->eos_id(), std::nullopt);
  EXPECT_THAT(LoadError(WithTemplate(), R"({"eos_token": "<end>"})"), HasSubstr("eos_token is \"<end>\""));
  EXPECT_THAT(LoadError(WithTemplate(), "{"), HasSubstr("tokenizer_config.json is not valid JSON"));
}

TEST(Load, TOK_14_CleanUpOnlyWhereTheFileSaysSo) {
  nlohmann::json file = SmallFile(ByteAlphabet());
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  file["decoder"] = {{"type", "ByteLevel"}};
  const auto absent = MustLoad(file);
  const auto off = MustLoad(file, R"({"clean_up_tokenization_spaces": false})");
  const auto on = MustLoad(file, R"({"clean_up_tokenization_spaces": true})");
  const std::pair<const char*, const char*> cases[] = {
      {" ...", "..."}, {"a , b", "a, b"}, {"do n't", "don't"}, {" 's", "'s"}, {"a ' b", "a'b"}};
  for (const auto& [text, cleaned] : cases) {
    const std::vector<int32_t> ids = Encoded(*on, text);
    EXPECT_EQ(absent->Detokenize(ids), text);
    EXPECT_EQ(off->Detokenize(ids), text);
    EXPECT_EQ(on->Detokenize(ids), cleaned);
    EXPECT_EQ(on->Decode(ids), text);
    EXPECT_EQ(JoinedPieces(*on, ids), text);
  }
  EXPECT_NE(absent->fingerprint(), on->fingerprint());
  EXPECT_EQ(absent->fingerprint(), off->fingerprint());
}

TEST(Load, FoldersWithAndWithoutConfig) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weir_tokenizer_load_test";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "tokenizer_config.json");
  std::ofstream(folder / "tokenizer.json") << WithTemplate().dump();
  EXPECT_EQ((*Tokenizer::Load(folder))->eos_id(), std::nullopt);
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": "</s>"})";
  EXPECT_EQ((*Tokenizer::Load(folder))->eos_id(), 3);
  std::filesystem::remove_all(folder);
  const auto missing = Tokenizer::Load(folder);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("tokenizer.json"));
}

TEST(Load, DamagedFilesAreErrors) {
  for (const char* text : {"", "[]", "{", "nonsense", "{\"model\": 3}", "{\"model\": {\"type\": \"BPE\"}}",
                           "{\"model\": {\"vocab\": {}, \"merges\": {}}}"}) {
    EXPECT_EQ(Tokenizer::FromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  // Any byte of a good file, gone or changed: an error or a tokenizer, never a crash.
  const std::string good = WithTemplate().dump();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string cut = good;
    cut.erase(i, 1);
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x15);
    for (const std::string& text : {cut, changed}) {
      const auto tokenizer = Tokenizer::FromJson(text);
      if (tokenizer.ok()) {
        EXPECT_GT((*tokenizer)->vocab_size(), 0);
      } else {
        EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
      }
    }
  }
}

TEST(Load, FingerprintFollowsWhatDecides) {
  const auto print = [](const nlohmann::json& file) { return MustLoad(file)->fingerprint(); };
  const nlohmann::json file = WithTemplate();
  // The value itself is fixed: sessions on disk carry it.
  EXPECT_EQ(print(file), uint64_t{9326732828884573428u});
  nlohmann::json changed = file;
  changed["version"] = "9";
  changed["truncation"] = {{"max_length", 3}};
  EXPECT_EQ(print(changed), print(file));
  changed = file;
  changed["added_tokens"][0]["lstrip"] = true;
  EXPECT_NE(print(changed), print(file));
  changed = file;
  changed["normalizer"] = {{"type", "NFC"}};
  EXPECT_NE(print(changed), print(file));
  changed = file;
  changed["decoder"] = {{"type", "Fuse"}};
  EXPECT_NE(print(changed), print(file));
  changed = file;
  changed["post_processor"] = nullptr;
  EXPECT_NE(print(changed), print(file));
  changed = file;
  changed["model"]["vocab"]["x"] = 7;
  EXPECT_NE(print(changed), print(file));
  changed = file;
  changed["model"]["merges"] = {"< s"};
  changed["model"]["vocab"]["<s"] = 7;
  nlohmann::json no_merge = changed;
  no_merge["model"]["merges"] = nlohmann::json::array();
  EXPECT_NE(print(changed), print(no_merge));
}

}  // namespace
}  // namespace weir
