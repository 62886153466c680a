// UTF-8 reading and writing, and the character classes that tokenizer files rely on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

// Byte offset of the first ill-formed sequence (overlong, surrogate, truncated, above U+10FFFF); none if
// valid.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// Code point at `*pos`, which moves past it. `text` is valid UTF-8 and `*pos` a character's first byte.
uint32_t NextCodePoint(std::string_view text, size_t* pos);

// First byte of the character that ends just before `pos` (> 0).
size_t PreviousCharacter(std::string_view text, size_t pos);

void AppendUtf8(uint32_t code_point, std::string* out);

// Unicode White_Space.
bool IsWhitespace(uint32_t code_point);

// Alphabetic, mark, decimal digit, connector punctuation or join control: \w as UTS #18 defines it.
bool IsWordCharacter(uint32_t code_point);

// `text` in double quotes for an error message: escapes what is not printable ASCII, cut after 40 bytes.
std::string Quoted(std::string_view text);

}  // namespace weir
