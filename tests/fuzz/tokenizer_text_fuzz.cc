// Texts under good tokenizers: the first byte chooses one, the second where the text is cut in two.
// Byte-level decoding gives every text back, whole and in parts.
#include <memory>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/tokenizer_files.h"

namespace {

using weir::Tokenizer;

std::vector<std::unique_ptr<Tokenizer>> MakeTokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const nlohmann::json& file : weir::testing::LosslessTokenizerFiles()) {
    auto tokenizer = Tokenizer::FromJson(file.dump());
    WEIR_CHECK(tokenizer.ok());
    tokenizers.push_back(*std::move(tokenizer));
  }
  return tokenizers;
}

// The two parts of `text`, encoded and decoded; *refused where they cost more than the patterns may.
std::string DecodedParts(const Tokenizer& tokenizer, std::string_view text, size_t cut, bool* refused) {
  Tokenizer::EncodeOptions options;
  std::vector<int32_t> ids;
  for (const std::string_view part : {text.substr(0, cut), text.substr(cut)}) {
    const auto some = tokenizer.Encode(part, options);
    *refused = *refused || !some.ok();
    if (!some.ok()) return "";
    ids.insert(ids.end(), some->begin(), some->end());
    options.continuation = !ids.empty();
  }
  std::string streamed;
  bool at_start = true;
  for (const int32_t id : ids) {
    streamed += tokenizer.Piece(id, at_start);
    at_start = false;
  }
  WEIR_CHECK(streamed == tokenizer.Decode(ids));
  return streamed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizers = MakeTokenizers();
  weir::fuzz::FuzzInput input(data, size);
  const Tokenizer& tokenizer = *tokenizers[input.Below(tokenizers.size())];
  size_t cut = input.Byte();
  const std::string_view text = input.rest();
  if (weir::FindInvalidUtf8(text)) {
    WEIR_CHECK(!tokenizer.Encode(text, {}).ok());
    return 0;
  }
  cut = std::min(cut, text.size());
  while (cut > 0 && cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  bool refused = false;
  const std::string decoded = DecodedParts(tokenizer, text, cut, &refused);
  // SentencePiece's mark for a space cannot be told from a space.
  std::string expected(text);
  if (tokenizer.TokenToId("\u2581"))
    for (size_t at = 0; (at = expected.find("\u2581", at)) != std::string::npos;)
      expected.replace(at, 3, " ");
  WEIR_CHECK(refused || decoded == expected);
  return 0;
}
