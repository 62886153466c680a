#include "server/option_values.h"

#include <charconv>
#include <cmath>

#include "fmt/format.h"
#include "runtime/base/address.h"
#include "runtime/base/error.h"
#include "server/frontend/names.h"

namespace weir {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr double kKi = 1024;
constexpr Unit kUnits[] = {{"", 1},
                           {"B", 1},
                           {"K", kKi},
                           {"Ki", kKi},
                           {"KiB", kKi},
                           {"KB", 1e3},
                           {"M", kKi* kKi},
                           {"Mi", kKi* kKi},
                           {"MiB", kKi* kKi},
                           {"MB", 1e6},
                           {"G", kKi* kKi* kKi},
                           {"Gi", kKi* kKi* kKi},
                           {"GiB", kKi* kKi* kKi},
                           {"GB", 1e9},
                           {"T", kKi* kKi* kKi* kKi},
                           {"Ti", kKi* kKi* kKi* kKi},
                           {"TiB", kKi* kKi* kKi* kKi},
                           {"TB", 1e12}};

bool IsIpv4Loopback(std::string_view host) {
  if (host.substr(0, 4) != "127.") return false;
  int dots = 0;
  for (const char c : host) {
    if (c == '.') ++dots;
    if (c != '.' && (c < '0' || c > '9')) return false;
  }
  return dots == 3;
}

}  // namespace

absl::StatusOr<MemorySize> ParseMemorySize(std::string_view text) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(
        fmt::format("{} is not a size; write 512MiB, 2GiB, 1000000 or 25%", Quoted(text)));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0 && number < 1e18)) return refuse();
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  MemorySize size;
  if (unit == "%") {
    if (number > 100) return refuse();
    size.share = number / 100;
    return size;
  }
  for (const auto& [name, bytes] : kUnits) {
    if (unit != name) continue;
    if (number * bytes >= 9e18) return refuse();
    size.bytes = std::llround(number * bytes);
    return size;
  }
  return refuse();
}

absl::StatusOr<absl::Duration> ParsePositiveDuration(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration())
    return absl::InvalidArgumentError(
        fmt::format("{} is not a duration; write 30s, 10m or 1h30m", Quoted(text)));
  return duration;
}

absl::StatusOr<absl::Duration> ParseDelay(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration == absl::ZeroDuration()) return duration;
  return ParsePositiveDuration(text);
}

absl::StatusOr<NamedFolder> ParseModel(std::string_view text) {
  NamedFolder model;
  const size_t equals = text.find('=');
  std::string_view folder = equals == std::string_view::npos ? text : text.substr(equals + 1);
  model.folder = std::string(folder);
  if (equals != std::string_view::npos) {
    model.name = std::string(text.substr(0, equals));
  } else {
    while (folder.size() > 1 && folder.back() == '/') folder.remove_suffix(1);
    model.name = std::string(folder.substr(folder.rfind('/') + 1));
  }
  if (model.folder.empty())
    return absl::InvalidArgumentError(fmt::format("{} names no folder", Quoted(text)));
  if (!IsValidId(model.name))
    return absl::InvalidArgumentError(
        fmt::format("{} is no model name ({}); write name=folder", Quoted(model.name), kIdPattern));
  return model;
}

absl::StatusOr<TokenizerChoice> ParseTokenizer(std::string_view text) {
  TokenizerChoice choice;
  const size_t equals = text.find('=');
  std::string_view folder = text;
  if (equals != std::string_view::npos) {
    choice.model = std::string(text.substr(0, equals));
    folder = text.substr(equals + 1);
    if (!IsValidId(choice.model))
      return absl::InvalidArgumentError(
          fmt::format("{} is no model name ({}); write name=folder", Quoted(choice.model), kIdPattern));
  }
  if (folder.empty()) return absl::InvalidArgumentError(fmt::format("{} names no folder", Quoted(text)));
  if (folder != "none") choice.folder = std::string(folder);
  return choice;
}

absl::StatusOr<std::string> ParseListen(std::string_view text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  constexpr std::string_view kForms = "write HOST:PORT, such as 127.0.0.1:7070, [IPV6]:PORT or unix:PATH";
  if (!address.ok())
    return absl::InvalidArgumentError(fmt::format("{}; {}", std::string(address.status().message()), kForms));
  if (address->path.empty() && !address->port)
    return absl::InvalidArgumentError(fmt::format("{} has no port; {}", Quoted(text), kForms));
  return std::string(text);
}

bool IsLoopback(std::string_view listen) {
  if (listen.substr(0, 5) == "unix:") return true;
  if (listen.substr(0, 6) == "[::1]:") return true;
  const std::string_view host = listen.substr(0, listen.rfind(':'));
  return host == "localhost" || IsIpv4Loopback(host);
}

}  // namespace weir
