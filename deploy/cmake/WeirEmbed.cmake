# weir_embed(target file symbol): compiles the bytes of `file` (relative to the current source folder) into `target`,
# as the constant `symbol` of namespace weir. Whoever uses it declares it:
#   extern const std::string_view kLivePage;
# A changed file is embedded anew by the next build.
function(weir_embed target file symbol)
  get_filename_component(input ${file} ABSOLUTE)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded/${symbol}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D input=${input} -D output=${output} -D symbol=${symbol} -P ${WEIR_EMBED_SCRIPT}
    DEPENDS ${input} ${WEIR_EMBED_SCRIPT}
    COMMENT "Embedding ${file}" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(WEIR_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  return()
endif()

# Below: what the command above runs. Every byte is escaped, so that no escape can take in what follows it.
file(READ ${input} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${hex}")
string(REPEAT "...." 32 line)
string(REGEX REPLACE "(${line})" "\\1\"\n    \"" bytes "${bytes}")
file(WRITE ${output}
"#include <string_view>

namespace weir {
extern const std::string_view ${symbol};
constinit const std::string_view ${symbol}(
    \"${bytes}\",
    ${size});
}  // namespace weir
")
