// The server's certificate, its key and the authority of its clients, read from files and checked.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct TlsPaths {
  std::string cert;       // PEM: the server's certificate, then those between it and the root
  std::string key;        // PEM, without a passphrase
  std::string client_ca;  // PEM; not empty: clients must show a certificate that one of these signed
  bool enabled() const { return !cert.empty(); }
};

struct TlsMaterial {
  std::string cert;  // contents of the files
  std::string key;
  std::string client_ca;
  std::vector<std::string> warnings;  // such as an expired certificate
};

// INVALID_ARGUMENT (TLS_FILES_INVALID, FILE_UNREADABLE) names the file: one that cannot be read or is no PEM
// of its kind, a key with a passphrase, a key that does not belong to the certificate.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsPaths& paths);

}  // namespace weir
