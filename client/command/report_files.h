// ReportFiles: where a load test's reports go.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/command/output.h"
#include "client/command/output_file.h"

namespace weir {

// Files are opened before the test, so that hours of it do not end with a folder that is not there. One
// thread.
class ReportFiles {
 public:
  // `option` is the one that named `path`; - is standard output, which takes one report. A UsageError for
  // what cannot be written, and for two reports in one place.
  absl::Status Open(const std::string& option, const std::string& path);

  // A report takes standard output, in place of the table.
  bool on_stdout() const { return !stdout_option_.empty(); }

  // Writes what `text` makes for each option, also when one of them cannot be written; the first error.
  absl::Status Write(const std::function<std::string(const std::string& option)>& text, Output* out);

 private:
  struct ReportPlace {
    std::string option;
    std::string path;      // as it was given
    std::string resolved;  // the same for all spellings of one place
    OutputFile file;
  };

  std::string stdout_option_;
  std::vector<ReportPlace> places_;
};

}  // namespace weir
