// The bytes of an HTTP connection: a decision never changes with the bytes behind it, and what is taken for a
// request has a path that means the same wherever it is written.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "server/http/http_request.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace weir;

bool IsSame(const ParsedHttpRequest& a, const ParsedHttpRequest& b) {
  return a.status == b.status &&
         (a.status != 200 || (a.request.head == b.request.head && a.request.path == b.request.path));
}

void CheckAccepted(const HttpRequest& request, std::string_view bytes) {
  WEIR_CHECK(bytes.starts_with(request.head ? "HEAD " : "GET "));
  WEIR_CHECK(request.path.starts_with('/') && bytes.find(request.path) != std::string_view::npos);
  for (const char c : request.path)
    WEIR_CHECK(static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '?' && c != '#');
  const std::string again = (request.head ? "HEAD " : "GET ") + request.path + " HTTP/1.0\n\n";
  const std::optional<ParsedHttpRequest> parsed = ParseHttpRequest(again);
  WEIR_CHECK(parsed && parsed->status == 200 && parsed->request.path == request.path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  const size_t cut = input.Byte() * size_t{256} + input.Byte();
  const std::string_view bytes = input.rest();
  const std::optional<ParsedHttpRequest> whole = ParseHttpRequest(bytes);
  const std::optional<ParsedHttpRequest> part = ParseHttpRequest(bytes.substr(0, cut % (bytes.size() + 1)));
  if (part) WEIR_CHECK(whole && IsSame(*part, *whole));
  if (!whole) {
    // It is either the beginning of something, or a line that more bytes can only make a bad one.
    WEIR_CHECK(ParseHttpRequest(std::string(bytes) + "\x01\n").value_or(ParsedHttpRequest()).status != 200);
    return 0;
  }
  WEIR_CHECK(whole->status == 200 || whole->status == 400 || whole->status == 405 || whole->status == 505);
  if (whole->status == 200) CheckAccepted(whole->request, bytes);
  // A body, or whatever else, is not looked at.
  WEIR_CHECK(IsSame(*whole, ParseHttpRequest(std::string(bytes) + "\r\n\x01 more").value()));
  return 0;
}
