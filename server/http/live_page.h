// The live page (web/live.html with its parts in one file), embedded by weir_page. Served at /, beside the
// live.json that it asks for.
#pragma once

#include <string_view>

namespace weir {

extern const std::string_view kLivePage;     // text/html; charset=utf-8
extern const std::string_view kFiguresPage;  // the same; the figures of model/zoo

}  // namespace weir
