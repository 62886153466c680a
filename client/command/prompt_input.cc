#include "client/command/prompt_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "client/command/exit_status.h"
#include "client/command/output.h"
#include "client/request_check.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

absl::Status CheckUtf8(std::string_view text) {
  const size_t at = FirstInvalidByte(text);
  if (at == std::string_view::npos) return absl::OkStatus();
  return UsageError(
      fmt::format("the prompt is not UTF-8: byte {} is 0x{:02x}; convert it, or send --token-ids", at,
                  static_cast<unsigned char>(text[at])));
}

}  // namespace

void AddPromptOptions(CLI::App* app, PromptOptions* options, const std::string& positional) {
  const std::string group = "Prompt";
  options->text_given =
      app->add_option(positional, options->text,
                      "The text; - reads standard input. Text that begins with a dash goes behind --.")
          ->type_name("");
  options->file_given = app->add_option("-f,--file", options->file,
                                        "Read the text from FILE, byte for byte; - is standard input.")
                            ->type_name("FILE")
                            ->group(group);
  options->token_ids_given =
      app->add_option("--token-ids", options->token_ids, "Token ids instead of text, such as 1,15,7.")
          ->type_name("IDS")
          ->group(group);
  options->special_given =
      app->add_flag(
             "--special-tokens,!--no-special-tokens", options->add_special_tokens,
             "Add what the tokenizer's template adds at the start, such as BOS. Default: at the start of a "
             "sequence only.")
          ->group(group);
  app->add_flag("--parse-special", options->parse_special,
                "Text that spells a special token becomes that token. Not for text from strangers.")
      ->group(group);
}

absl::StatusOr<std::optional<v1::Prompt>> ReadPrompt(const PromptOptions& options, bool may_be_missing) {
  const bool has_text = options.text_given->count() > 0;
  const bool has_file = options.file_given->count() > 0;
  const bool has_ids = options.token_ids_given->count() > 0;
  if (has_text + has_file + has_ids > 1)
    return UsageError("give the prompt once: as an argument, with --file or with --token-ids");
  v1::Prompt prompt;
  if (options.special_given->count() > 0) prompt.set_add_special_tokens(options.add_special_tokens);
  if (options.parse_special) prompt.set_parse_special(true);
  if (has_ids) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseTokenIds(options.token_ids));
    prompt.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
    return prompt;
  }
  std::string text = options.text;
  if (has_file || text == "-") {
    WEIR_ASSIGN_OR_RETURN(text, ReadAll(has_file ? options.file : "-"));
  } else if (!has_text) {
    if (may_be_missing) return std::nullopt;
    if (IsTerminal(STDIN_FILENO))
      return UsageError("no prompt: give it as an argument, with --file FILE, or on standard input");
    WEIR_ASSIGN_OR_RETURN(text, ReadAll("-"));
  }
  WEIR_RETURN_IF_ERROR(CheckUtf8(text));
  prompt.set_text(std::move(text));
  return prompt;
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  const int fd = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto refuse = [&] {
    return UsageError(fmt::format("cannot read {}: {}", path == "-" ? "standard input" : Quoted(path),
                                  std::strerror(errno)));
  };
  if (fd < 0) return refuse();
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const absl::Status status = refuse();
      if (fd != STDIN_FILENO) close(fd);
      return status;
    }
    text.append(buffer, static_cast<size_t>(count));
  }
  if (fd != STDIN_FILENO) close(fd);
  return text;
}

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  constexpr std::string_view kSeparators = ", \t\r\n";
  const auto skip_spaces = [&](size_t at) {
    return std::min(text.find_first_not_of(kSpaces, at), text.size());
  };
  std::vector<int32_t> ids;
  bool comma = false;  // the last thing seen
  for (size_t at = skip_spaces(0); at < text.size() || comma;) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    if (at == end) return UsageError("a comma without a token id beside it; write ids such as 1,15,7");
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      return UsageError(
          fmt::format("{} is not a token id; write ids such as 1,15,7", Quoted(text.substr(at, end - at))));
    ids.push_back(id);
    at = skip_spaces(end);
    comma = at < text.size() && text[at] == ',';
    if (comma) at = skip_spaces(at + 1);
  }
  if (ids.empty()) return UsageError("no token ids; write ids such as 1,15,7");
  return ids;
}

}  // namespace weir
