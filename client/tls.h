// TLS on the client's side: the files, and why a handshake failed.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

struct TlsOptions {
  bool enabled = false;
  std::string ca_file = {};    // PEM: whom to trust; empty: whom this system trusts
  std::string cert_file = {};  // PEM, with key_file: what to show a server that asks
  std::string key_file = {};
};

// Contents of the files.
struct TlsFiles {
  std::string ca;
  std::string cert;
  std::string key;
};

// INVALID_ARGUMENT (TLS_FILES_INVALID) names the file that cannot be read, is of another kind, or, for a key,
// belongs to another certificate.
absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsOptions& options);

// After gRPC could not connect: shakes hands once more, by itself, and says what is wrong as UNAVAILABLE with
// the reason TLS_REQUIRED, TLS_NOT_SPOKEN, TLS_UNTRUSTED, TLS_NAME_MISMATCH or TLS_CLIENT_REFUSED. OK when
// TLS does not explain it. `target` as in connect.h; takes at most about `timeout`.
absl::Status ExplainTlsFailure(const std::string& target, const TlsOptions& options, const TlsFiles& files,
                               absl::Duration timeout);

}  // namespace weir
