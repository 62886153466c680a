// GPT-2's byte alphabet: every byte has a printable character, so that a vocabulary can be written as JSON
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// Appends the alphabet's character for each byte of `bytes`.
void AppendByteLevel(std::string_view bytes, std::string* out);

// The byte that `code_point` stands for, or -1 for a character outside the alphabet.
int ByteOfCharacter(uint32_t code_point);

}  // namespace weir
