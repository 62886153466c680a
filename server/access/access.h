// Access: keys and certificates of one server, kept up to date with their files.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "server/access/authenticator.h"
#include "server/access/file_watch.h"
#include "server/access/tls_files.h"

namespace weir {

enum class LogLevel { kInfo, kWarning };

struct AccessOptions {
  TlsPaths tls;
  std::string api_keys;  // path; empty: everybody may call, and all share the sessions
  absl::Duration poll_interval = absl::Seconds(1);
  // What happens to the files, for the operator. Any thread; empty: nobody is told.
  std::function<void(LogLevel, const std::string& line)> log;
};

// Owned by the server, outlives its calls. A file that changes is read again once it has come to rest; one
// that is damaged then changes nothing, and the log says so.
class Access {
 public:
  // INVALID_ARGUMENT names the option and the file.
  static absl::StatusOr<std::unique_ptr<Access>> Create(const AccessOptions& options);

  // Null: no keys are asked for.
  Authenticator* authenticator() const { return authenticator_.get(); }

  struct VersionedTls {
    int64_t version = 0;  // rises with each change
    std::shared_ptr<const TlsMaterial> material;
  };
  // Null material: plaintext.
  VersionedTls Tls() const;

 private:
  explicit Access(const AccessOptions& options) : options_(options) {}
  void Log(LogLevel level, const std::string& line) const;
  void SetTls(TlsMaterial material);
  void ReloadKeys();
  void ReloadTls();

  const AccessOptions options_;
  std::unique_ptr<Authenticator> authenticator_;
  mutable Mutex mu_;
  VersionedTls tls_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<FileWatch> watch_;  // ends first
};

}  // namespace weir
