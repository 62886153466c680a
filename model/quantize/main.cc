// weir-quantize: a model folder to one with int8 matrices.
#include <cstdio>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "model/quantize/quantize_folder.h"

namespace {

constexpr std::string_view kHelp =
    R"(weir-quantize: writes a model folder with int8 matrices, one scale for each output,
which is served in half the bytes of bf16 and streams faster to a single session.

Usage: weir-quantize FROM TO

FROM is a model folder as weir-server takes it (f32, f16 or bf16), TO the folder
to write, which must not exist. The result is what weir-server makes of FROM with
--weight-dtype int8; here it is made once, and half as large.

Options:
  -h, --help   Print this text and exit.
  --version    Print the version and exit.

EXIT STATUS
  0  written
  1  FROM cannot be loaded, or TO cannot be written: standard error says why
  2  wrong arguments
)";

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      fmt::print("{}", kHelp);
      return std::fflush(stdout) == 0 ? 0 : 1;
    }
    if (argument == "--version") {
      fmt::print("weir-quantize {}\n", WEIR_VERSION);
      return std::fflush(stdout) == 0 ? 0 : 1;
    }
    if (argument.empty() || argument.front() == '-') {
      fmt::print(stderr,
                 "weir-quantize: '{}' is neither a folder nor an option; weir-quantize --help explains\n",
                 argument);
      return 2;
    }
  }
  if (argc != 3) {
    fmt::print(stderr, "weir-quantize: two folders are wanted, FROM and TO; weir-quantize --help explains\n");
    return 2;
  }
  const absl::StatusOr<weir::QuantizedFolder> result = weir::QuantizeFolder(argv[1], argv[2]);
  if (!result.ok()) {
    fmt::print(stderr, "weir-quantize: {}\n", std::string(result.status().message()));
    return 1;
  }
  fmt::print("{}: {} matrices are int8; {} bytes of tensors, {} before\n", argv[2], result->matrices,
             result->bytes_after, result->bytes_before);
  if (std::fflush(stdout) == 0) return 0;
  fmt::print(stderr, "weir-quantize: '{}' is written, but standard output cannot be\n", argv[2]);
  return 1;
}
