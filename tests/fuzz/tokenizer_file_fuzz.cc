// tokenizer.json, tokenizer_config.json and a text, with zero bytes between: a file that loads must encode
// and decode without a fault, and stream what it decodes.
#include <string>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  fuzz::FuzzInput input(data, size);
  const std::string file = input.Text();
  const std::string config = input.Text();
  const std::string text(input.rest());
  const auto loaded = Tokenizer::FromJson(file, config);
  if (!loaded.ok()) {
    WEIR_CHECK(!loaded.status().message().empty());
    return 0;
  }
  const Tokenizer& tokenizer = **loaded;
  for (const bool on : {false, true}) {
    Tokenizer::EncodeOptions options;
    options.add_special_tokens = options.parse_special = on;
    const auto ids = tokenizer.Encode(text, options);
    if (FindInvalidUtf8(text)) WEIR_CHECK(!ids.ok());
    if (!ids.ok()) continue;
    bool at_start = true;
    std::string streamed;
    for (const int32_t id : *ids) {
      WEIR_CHECK(id >= 0 && id < tokenizer.vocab_size());
      streamed += tokenizer.Piece(id, at_start);
      if (!tokenizer.IsSpecial(id) && !tokenizer.IdToToken(id).empty()) at_start = false;
    }
    WEIR_CHECK(streamed == tokenizer.Decode(*ids));
    (void)tokenizer.Detokenize(*ids);
  }
  return 0;
}
