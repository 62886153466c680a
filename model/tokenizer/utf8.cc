#include "model/tokenizer/utf8.h"

#include <utf8proc.h>

#include "fmt/format.h"

namespace weir {
namespace {

// Length that a lead byte announces; 0 for a byte that starts no character.
size_t SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if ((lead & 0xF0) == 0xE0) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const unsigned char lead = text[i];
    const size_t length = SequenceLength(lead);
    if (length == 0 || i + length > text.size()) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return i;
    }
    if (length >= 3) {
      const unsigned char second = text[i + 1];
      if (lead == 0xE0 && second < 0xA0) return i;
      if (lead == 0xED && second > 0x9F) return i;
      if (lead == 0xF0 && second < 0x90) return i;
      if (lead == 0xF4 && second > 0x8F) return i;
    }
    i += length;
  }
  return std::nullopt;
}

uint32_t NextCodePoint(std::string_view text, size_t* pos) {
  const unsigned char lead = text[*pos];
  if (lead < 0x80) {
    ++*pos;
    return lead;
  }
  const size_t length = SequenceLength(lead);
  uint32_t code_point = lead & (0xFF >> (length + 1));
  for (size_t k = 1; k < length; ++k) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[*pos + k]) & 0x3F);
  }
  *pos += length;
  return code_point;
}

size_t PreviousCharacter(std::string_view text, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool IsWhitespace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Join controls, and the circled or squared letters, which are symbols with Other_Alphabetic.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  }
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 40;
  std::string out = "\"";
  for (const unsigned char c : text.substr(0, kMaxBytes)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c >= 0x20 && c < 0x7F) {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("\\x{:02X}", c);
    }
  }
  out += text.size() > kMaxBytes ? "\"..." : "\"";
  return out;
}

}  // namespace weir
