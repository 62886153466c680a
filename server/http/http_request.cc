#include "server/http/http_request.h"

#include <algorithm>

namespace weir {
namespace {

constexpr std::string_view kNoTokenCharacters = " \t\"(),/:;<=>?@[\\]{}";  // RFC 9110, 5.6.2

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7f && kNoTokenCharacters.find(c) == std::string_view::npos;
  });
}

bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; });
}

// The next line without its end, which is removed from *rest; nullopt when it has none.
std::optional<std::string_view> TakeLine(std::string_view* rest) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = rest->substr(0, end);
  rest->remove_prefix(end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

int ParseVersion(std::string_view version) {
  if (version == "HTTP/1.1" || version == "HTTP/1.0") return 200;
  return version.size() == 8 && version.substr(0, 5) == "HTTP/" ? 505 : 400;
}

// The status to go on with.
int ParseRequestLine(std::string_view line, HttpRequest* request) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return 400;
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!IsToken(method) || target.empty() || target.find_first_of(" \t") != std::string_view::npos) return 400;
  if (const int status = ParseVersion(line.substr(last + 1)); status != 200) return status;
  if (method != "GET" && method != "HEAD") return 405;
  request->head = method == "HEAD";
  if (const size_t scheme = target.find("://"); target[0] != '/' && scheme != std::string_view::npos) {
    const size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  if (target[0] != '/') return 400;
  request->path = std::string(target.substr(0, target.find_first_of("?#")));
  return 200;
}

}  // namespace

std::optional<ParsedHttpRequest> ParseHttpRequest(std::string_view bytes) {
  ParsedHttpRequest parsed;
  const auto refuse = [&](int status) {
    parsed.status = status;
    return parsed;
  };
  std::string_view rest = bytes;
  const std::optional<std::string_view> first = TakeLine(&rest);
  if (!first) {
    const std::string_view line = bytes.substr(0, bytes.size() - (bytes.ends_with('\r') ? 1 : 0));
    return HasControl(line) ? std::optional(refuse(400)) : std::nullopt;
  }
  if (HasControl(*first)) return refuse(400);
  const int status = ParseRequestLine(*first, &parsed.request);
  if (status == 400 || status == 505) return refuse(status);
  for (;;) {
    const std::optional<std::string_view> line = TakeLine(&rest);
    if (!line) return std::nullopt;
    if (line->empty()) return refuse(status);
    // Neither a fold (RFC 9112, 5.2) nor a space before the colon.
    if (HasControl(*line) || !IsToken(line->substr(0, line->find(':'))) ||
        line->find(':') == std::string_view::npos)
      return refuse(400);
  }
}

}  // namespace weir
