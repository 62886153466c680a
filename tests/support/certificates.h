// Certificates made for one test: an authority and what it signs, as PEM.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace weir::testing {

struct Identity {
  std::string cert;
  std::string key;
};

// P-256 keys, made anew each time.
class Authority {
 public:
  // Valid for `hours`; below zero its own certificate has expired.
  explicit Authority(const std::string& name, int hours = 48);
  ~Authority();

  const std::string& cert() const { return cert_; }
  // `names`: subjectAltName entries, "DNS:localhost" or "IP:127.0.0.1". Valid from two hours
  // ago, or in `from_hours`, for `hours` from now; below zero it has expired.
  Identity Issue(const std::string& common_name, const std::vector<std::string>& names, int hours = 24,
                 int from_hours = -2) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::string cert_;
};

// For a server on this machine.
inline const std::vector<std::string> kLocalNames = {"DNS:localhost", "IP:127.0.0.1"};

// PEM of a private key under a passphrase.
std::string EncryptedKey();

}  // namespace weir::testing
