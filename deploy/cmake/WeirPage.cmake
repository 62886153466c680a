# weir_page(target file.html symbol): embeds a page as ONE file, as weir_embed does: each
#   <link rel="stylesheet" href="FILE">  and  <script src="FILE"></script>
# on a line is replaced by what FILE, beside the page, holds, and src="FILE.svg" of an image by a data: address with it.
# The sources work in a browser as they are.

set(WEIR_PAGE_PART
  "<link rel=\"stylesheet\" href=\"([^\"]+)\">|<script src=\"([^\"]+)\"></script>|src=\"([^\"]+\\.svg)\"")

function(weir_page target file symbol)
  get_filename_component(input ${file} ABSOLUTE)
  get_filename_component(folder ${input} DIRECTORY)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/pages/${symbol}.html)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${input})  # it may name other parts
  file(READ ${input} page)
  string(REGEX MATCHALL "${WEIR_PAGE_PART}" tags "${page}")
  set(parts "")
  foreach(tag IN LISTS tags)
    string(REGEX MATCH "${WEIR_PAGE_PART}" tag "${tag}")
    list(APPEND parts ${folder}/${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3})
  endforeach()
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D input=${input} -D output=${output} -D folder=${folder} -P ${WEIR_PAGE_SCRIPT}
    DEPENDS ${input} ${parts} ${WEIR_PAGE_SCRIPT}
    COMMENT "Joining ${file}" VERBATIM)
  weir_embed(${target} ${output} ${symbol})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(WEIR_PAGE_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  include(WeirEmbed)
  return()
endif()

# Below: what the command above runs.
file(READ ${input} page)
string(REGEX MATCHALL "${WEIR_PAGE_PART}" tags "${page}")
foreach(tag IN LISTS tags)
  string(REGEX MATCH "${WEIR_PAGE_PART}" tag "${tag}")
  file(READ ${folder}/${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3} part)
  if(CMAKE_MATCH_3)
    foreach(character "%:25" "\":22" "#:23" "<:3C" ">:3E" "\n:0A")  # % first
      string(SUBSTRING "${character}" 0 1 plain)
      string(SUBSTRING "${character}" 2 2 code)
      string(REPLACE "${plain}" "%${code}" part "${part}")
    endforeach()
    string(REPLACE "${tag}" "src=\"data:image/svg+xml,${part}\"" page "${page}")
    continue()
  endif()
  if(CMAKE_MATCH_1)
    set(name style)
  else()
    set(name script)
  endif()
  string(REPLACE "${tag}" "<${name}>\n${part}</${name}>" page "${page}")
endforeach()
file(WRITE ${output} "${page}")
