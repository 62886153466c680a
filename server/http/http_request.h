// The head of an HTTP/1.x request (RFC 9112): as much of it as a server needs that only shows things.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weir {

struct HttpRequest {
  bool head = false;  // HEAD: the same answer without its body
  std::string path;   // as sent, without query
};

struct ParsedHttpRequest {
  HttpRequest request;
  int status = 200;  // otherwise what to answer at once: 400, 405, 505
};

// Nullopt: more bytes are needed. What can only become a bad request is one at once.
std::optional<ParsedHttpRequest> ParseHttpRequest(std::string_view bytes);

}  // namespace weir
