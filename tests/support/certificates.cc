#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "runtime/base/check.h"

namespace weir::testing {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Cert = std::unique_ptr<X509, Free>;

template <class Write>
std::string Pem(Write write) {
  const std::unique_ptr<BIO, Free> bio(BIO_new(BIO_s_mem()));
  WEIR_CHECK(write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

Key NewKey() {
  Key key(EVP_EC_gen("P-256"));
  WEIR_CHECK(key != nullptr);
  return key;
}

void AddExtension(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  WEIR_CHECK(extension != nullptr && X509_add_ext(cert, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Without signature. `issuer` null: its own.
Cert NewCert(const std::string& common_name, EVP_PKEY* key, X509* issuer, int hours, int from_hours = -2) {
  static long serial = 1;
  Cert cert(X509_new());
  X509_set_version(cert.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), 3600L * from_hours);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 3600L * hours);
  X509_set_pubkey(cert.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(cert.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  X509_set_issuer_name(cert.get(), X509_get_subject_name(issuer == nullptr ? cert.get() : issuer));
  return cert;
}

std::string CertPem(X509* cert) {
  return Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, cert); });
}

std::string KeyPem(EVP_PKEY* key) {
  return Pem([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

}  // namespace

struct Authority::Parts {
  Key key = NewKey();
  Cert cert;
};

Authority::Authority(const std::string& name, int hours) : parts_(std::make_unique<Parts>()) {
  parts_->cert = NewCert(name, parts_->key.get(), nullptr, hours);
  X509* cert = parts_->cert.get();
  AddExtension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
  WEIR_CHECK(X509_sign(cert, parts_->key.get(), EVP_sha256()) > 0);
  cert_ = CertPem(cert);
}

Authority::~Authority() = default;

Identity Authority::Issue(const std::string& common_name, const std::vector<std::string>& names, int hours,
                          int from_hours) const {
  const Key key = NewKey();
  const Cert cert = NewCert(common_name, key.get(), parts_->cert.get(), hours, from_hours);
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ",") + name;
  if (!joined.empty()) AddExtension(cert.get(), parts_->cert.get(), NID_subject_alt_name, joined);
  WEIR_CHECK(X509_sign(cert.get(), parts_->key.get(), EVP_sha256()) > 0);
  return {CertPem(cert.get()), KeyPem(key.get())};
}

std::string EncryptedKey() {
  const Key key = NewKey();
  char passphrase[] = "secret";
  return Pem([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key.get(), EVP_aes_128_cbc(), passphrase, sizeof passphrase - 1,
                                         nullptr, nullptr);
  });
}

}  // namespace weir::testing
