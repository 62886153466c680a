#include "model/tokenizer/byte_level.h"

#include <array>

#include "model/tokenizer/utf8.h"

namespace weir {
namespace {

// Bytes that print in Latin-1 stand for themselves; the others, in order, take U+0100 and up.
struct Alphabet {
  std::array<std::string, 256> character;
  std::array<int16_t, 0x144> byte;

  Alphabet() {
    byte.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint32_t code_point = prints ? b : next++;
      AppendUtf8(code_point, &character[b]);
      byte[code_point] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet* const kAlphabet = new Alphabet;
  return *kAlphabet;
}

}  // namespace

void AppendByteLevel(std::string_view bytes, std::string* out) {
  const Alphabet& alphabet = GetAlphabet();
  for (const unsigned char b : bytes) out->append(alphabet.character[b]);
}

int ByteOfCharacter(uint32_t code_point) {
  const Alphabet& alphabet = GetAlphabet();
  return code_point < alphabet.byte.size() ? alphabet.byte[code_point] : -1;
}

}  // namespace weir
