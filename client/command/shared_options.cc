// Options and text forms that several subcommands use.
#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "fmt/format.h"

namespace weir {

CLI::Option* AddModelOption(CLI::App* app, std::string* model) {
  return app
      ->add_option("-m,--model", *model,
                   "The model, with or without models/. Not needed when the server holds only one.")
      ->type_name("MODEL");
}

CLI::Option* AddTimeOption(CLI::App* app, const std::string& name, std::function<void(absl::Duration)> set,
                           const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, set = std::move(set)](const std::string& text) {
            const absl::StatusOr<absl::Duration> time = ParseTime(text);
            if (!time.ok()) throw CLI::ValidationError(name, std::string(time.status().message()));
            set(*time);
          },
          help)
      ->type_name("TIME");
}

void SetDuration(absl::Duration duration, google::protobuf::Duration* out) {
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
}

std::string StateText(const v1::StateCost& state) {
  const std::string fixed = fmt::format("{} B per session", state.fixed_bytes());
  if (state.kind() != v1::StateCost::KIND_PAGED || state.block_tokens() <= 0) return fixed;
  const std::string paged =
      fmt::format("{} B per token, in blocks of {} tokens ({} B)", state.block_bytes() / state.block_tokens(),
                  state.block_tokens(), state.block_bytes());
  return state.fixed_bytes() > 0 ? fixed + " + " + paged : paged;
}

std::string Escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\')
      out += "\\\\";
    else if (byte >= 0x20 && byte < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  return out;
}

}  // namespace weir
