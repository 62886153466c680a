#include "server/access/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/access/read_file.h"

namespace weir {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{4} << 20;

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

Bio Open(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

absl::Status Refuse(std::string_view option, const std::string& path, std::string_view why) {
  ERR_clear_error();
  return MakeError(absl::StatusCode::kInvalidArgument, "TLS_FILES_INVALID",
                   fmt::format("{} {}: {}", option, Quoted(path), why), {{"path", path}});
}

// The first of the certificates; all of them are read, so that a damaged later one is noticed.
absl::StatusOr<Certificate> ReadCertificates(std::string_view option, const std::string& path,
                                             const std::string& text) {
  const Bio bio = Open(text);
  Certificate first(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!first) return Refuse(option, path, "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)");
  while (Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))) {
  }
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    return Refuse(option, path, "one of its certificates is damaged");
  ERR_clear_error();
  return first;
}

// The library would ask at the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<Key> ReadKey(const std::string& path, const std::string& text) {
  const Bio bio = Open(text);
  bool encrypted = false;
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, &encrypted));
  if (encrypted) return Refuse("--tls-key", path, "needs a passphrase; store it without one");
  if (!key)
    return Refuse("--tls-key", path, "holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)");
  return key;
}

void AddWarnings(const X509& certificate, const std::string& path, std::vector<std::string>* warnings) {
  // Not what keeps a server from starting: clocks differ, and clients check for themselves.
  if (X509_cmp_current_time(X509_get0_notBefore(&certificate)) > 0)
    warnings->push_back(fmt::format("the certificate in {} is not valid yet", Quoted(path)));
  if (X509_cmp_current_time(X509_get0_notAfter(&certificate)) < 0)
    warnings->push_back(
        fmt::format("the certificate in {} has expired: clients will refuse it", Quoted(path)));
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsPaths& paths) {
  TlsMaterial material;
  WEIR_ASSIGN_OR_RETURN(material.cert, ReadSmallFile("--tls-cert", paths.cert, kMaxFileBytes));
  WEIR_ASSIGN_OR_RETURN(material.key, ReadSmallFile("--tls-key", paths.key, kMaxFileBytes));
  ERR_clear_error();
  WEIR_ASSIGN_OR_RETURN(const Certificate certificate,
                        ReadCertificates("--tls-cert", paths.cert, material.cert));
  WEIR_ASSIGN_OR_RETURN(const Key key, ReadKey(paths.key, material.key));
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    return Refuse(
        "--tls-key", paths.key,
        fmt::format("is not the key of the certificate in {}; if that holds a chain, the server's own "
                    "certificate must be its first",
                    Quoted(paths.cert)));
  AddWarnings(*certificate, paths.cert, &material.warnings);
  if (!paths.client_ca.empty()) {
    WEIR_ASSIGN_OR_RETURN(material.client_ca,
                          ReadSmallFile("--tls-client-ca", paths.client_ca, kMaxFileBytes));
    WEIR_ASSIGN_OR_RETURN(const Certificate authority,
                          ReadCertificates("--tls-client-ca", paths.client_ca, material.client_ca));
    AddWarnings(*authority, paths.client_ca, &material.warnings);
  }
  return material;
}

}  // namespace weir
