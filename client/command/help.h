// The prose of --help.
#pragma once

#include <string_view>

namespace weir {

extern const std::string_view kSummary;
extern const std::string_view kFooter;
extern const std::string_view kGenerateFooter;
extern const std::string_view kSessionsFooter;
extern const std::string_view kScoreFooter;
extern const std::string_view kInfoFooter;
extern const std::string_view kModelsFooter;
extern const std::string_view kTokenizeFooter;
extern const std::string_view kDetokenizeFooter;
extern const std::string_view kLoadtestFooter;
extern const std::string_view kCompletionFooter;
// Behind the footer of every command.
extern const std::string_view kCommandFooter;

}  // namespace weir
