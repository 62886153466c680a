#include "client/tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "client/connect.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "runtime/base/address.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

struct Free {
  void operator()(BIO* object) const { BIO_free_all(object); }
  void operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
  void operator()(SSL* object) const { SSL_free(object); }
  void operator()(SSL_CTX* object) const { SSL_CTX_free(object); }
  void operator()(X509* object) const { X509_free(object); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

absl::Status BadFile(std::string_view path, std::string_view why) {
  ERR_clear_error();
  return MakeError(absl::StatusCode::kInvalidArgument, kTlsFilesInvalid,
                   fmt::format("{}: {}", Quoted(path), why), {{"path", std::string(path)}});
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // a folder opens, and fails here
  if (!file || (text.str().empty() && errno != 0))
    return BadFile(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  return text.str();
}

Owned<BIO> Open(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
Owned<X509> FirstCertificate(const std::string& pem) {
  return Owned<X509>(PEM_read_bio_X509(Open(pem).get(), nullptr, nullptr, nullptr));
}
Owned<EVP_PKEY> PrivateKey(const std::string& pem) {
  // An empty passphrase, so that the library does not ask at the terminal.
  char none[] = "";
  return Owned<EVP_PKEY>(PEM_read_bio_PrivateKey(Open(pem).get(), nullptr, nullptr, none));
}

// A socket that is closed at the end, and waits no longer than to its deadline.
class Socket {
 public:
  explicit Socket(absl::Time deadline) : deadline_(deadline) {}
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool Connect(const Address& peer) {
    if (!peer.path.empty()) {
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      if (peer.path.size() >= sizeof address.sun_path) return false;
      std::memcpy(address.sun_path, peer.path.data(), peer.path.size());
      return ConnectTo(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(peer.host.c_str(), std::to_string(peer.port.value_or(kDefaultPort)).c_str(), &hints,
                    &found) != 0)
      return false;
    bool connected = false;
    for (const addrinfo* at = found; at != nullptr && !connected; at = at->ai_next)
      connected = ConnectTo(at->ai_family, at->ai_addr, at->ai_addrlen);
    freeaddrinfo(found);
    return connected;
  }
  // POLLIN or POLLOUT.
  bool Wait(short events) const {
    pollfd entry = {fd_, events, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline_ - MonotonicNow());
    return poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, left))) == 1;
  }
  int fd() const { return fd_; }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  bool ConnectTo(int family, const sockaddr* address, socklen_t size) {
    Close();
    fd_ = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return false;
    if (connect(fd_, address, size) == 0) return true;
    int error = 0;
    socklen_t length = sizeof error;
    return errno == EINPROGRESS && Wait(POLLOUT) &&
           getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  }

  const absl::Time deadline_;
  int fd_ = -1;
};

// Repeats `step` (an SSL_… call) for as long as it wants to read or write. Its result, and SSL_get_error's.
template <class Step>
std::pair<int, int> Drive(SSL* ssl, const Socket& socket, Step step) {
  for (;;) {
    ERR_clear_error();
    const int result = step();
    const int error = SSL_get_error(ssl, result);
    if (error == SSL_ERROR_WANT_READ && socket.Wait(POLLIN)) continue;
    if (error == SSL_ERROR_WANT_WRITE && socket.Wait(POLLOUT)) continue;
    return {result, error};
  }
}

absl::Status Failure(std::string_view reason, const std::string& target, std::string_view what) {
  return MakeError(absl::StatusCode::kUnavailable, reason, fmt::format("the server at {} {}", target, what),
                   {{"address", target}});
}

std::string NamesIn(X509* certificate) {
  std::string names;
  auto* entries =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; entries != nullptr && i < sk_GENERAL_NAME_num(entries); ++i) {
    const GENERAL_NAME* entry = sk_GENERAL_NAME_value(entries, i);
    std::string name;
    char text[INET6_ADDRSTRLEN];
    if (entry->type == GEN_DNS) {
      name.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(entry->d.dNSName)),
                  static_cast<size_t>(ASN1_STRING_length(entry->d.dNSName)));
    } else if (entry->type == GEN_IPADD) {
      const int family = ASN1_STRING_length(entry->d.iPAddress) == 4 ? AF_INET : AF_INET6;
      if (inet_ntop(family, ASN1_STRING_get0_data(entry->d.iPAddress), text, sizeof text)) name = text;
    }
    if (!name.empty()) names += (names.empty() ? "" : ", ") + Quoted(name);
  }
  GENERAL_NAMES_free(entries);
  return names.empty() ? "no name at all" : names;
}

bool IsFor(X509* certificate, const std::string& host) {
  in6_addr scratch;
  const bool ip =
      inet_pton(AF_INET, host.c_str(), &scratch) == 1 || inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
  return ip ? X509_check_ip_asc(certificate, host.c_str(), 0) == 1
            : X509_check_host(certificate, host.c_str(), host.size(), 0, nullptr) == 1;
}

std::string DateOf(const ASN1_TIME* time) {
  tm date = {};
  char text[32] = "an unknown date";
  if (ASN1_TIME_to_tm(time, &date) == 1) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &date);
  return text;
}

// "expired on …" or "is valid from … on only"; empty when the certificate is in its time.
std::string TimeFault(X509* certificate) {
  const ASN1_TIME* const from = X509_get0_notBefore(certificate);
  const ASN1_TIME* const to = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(to) < 0) return "expired on " + DateOf(to);
  if (X509_cmp_current_time(from) > 0) return fmt::format("is valid from {} on only", DateOf(from));
  return "";
}

// What is wrong with the server's certificate, of which OpenSSL says `verified`, and what helps.
std::string WhyUntrusted(X509* certificate, long verified) {
  const std::string said = X509_verify_cert_error_string(verified);
  switch (verified) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID: {
      const std::string fault = TimeFault(certificate);
      if (!fault.empty())
        return fmt::format(
            "has a certificate that {}: the server needs a new one, or the clock of this machine is wrong",
            fault);
      return fmt::format(
          "has a certificate whose authority is out of its time ({}): the authority needs a new certificate, "
          "here (--ca FILE) and on the server, or the clock of this machine is wrong",
          said);
    }
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_UNTRUSTED:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:  // of another authority with the same name
      return fmt::format(
          "has a certificate that is not trusted here ({}): name the authority that signed it with --ca FILE",
          said);
    default:
      return fmt::format("has a certificate that is not accepted here ({}): the server needs another one",
                         said);
  }
}

int NoteThatItAsked(SSL* /*ssl*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 1;
}

// OpenSSL writes to sockets whose peer may have gone. The program around this library may not ignore the
// signal.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~NoSigpipe() {
    // One that came meanwhile is this thread's own.
    const timespec now = {};
    if (sigismember(&before_, SIGPIPE) == 0) sigtimedwait(&sigpipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

Owned<SSL_CTX> MakeContext(const TlsFiles& files, bool* asked) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  if (!context) return nullptr;
  // The result is looked at after the handshake, so that there is one.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_cert_cb(context.get(), NoteThatItAsked, asked);
  constexpr unsigned char kAlpn[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kAlpn, sizeof kAlpn);
  if (files.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else {
    const Owned<BIO> bio = Open(files.ca);
    while (const Owned<X509> authority{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)})
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get());
  }
  if (!files.cert.empty()) {
    SSL_CTX_use_certificate(context.get(), FirstCertificate(files.cert).get());
    SSL_CTX_use_PrivateKey(context.get(), PrivateKey(files.key).get());
  }
  ERR_clear_error();
  return context;
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsOptions& options) {
  TlsFiles files;
  if (!options.ca_file.empty()) {
    WEIR_ASSIGN_OR_RETURN(files.ca, ReadPem(options.ca_file));
    if (!FirstCertificate(files.ca))
      return BadFile(options.ca_file, "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)");
  }
  if (options.cert_file.empty() != options.key_file.empty())
    return BadFile(options.cert_file.empty() ? options.key_file : options.cert_file,
                   "a client's certificate and its key go together");
  if (options.cert_file.empty()) return files;
  WEIR_ASSIGN_OR_RETURN(files.cert, ReadPem(options.cert_file));
  WEIR_ASSIGN_OR_RETURN(files.key, ReadPem(options.key_file));
  const Owned<X509> certificate = FirstCertificate(files.cert);
  if (!certificate)
    return BadFile(options.cert_file, "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)");
  const Owned<EVP_PKEY> key = PrivateKey(files.key);
  if (!key)
    return BadFile(options.key_file,
                   "holds no private key in PEM form (-----BEGIN PRIVATE KEY-----) without a passphrase");
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    return BadFile(options.key_file,
                   fmt::format("is not the key of the certificate in {}", Quoted(options.cert_file)));
  return files;
}

absl::Status ExplainTlsFailure(const std::string& target, const TlsOptions& options, const TlsFiles& files,
                               absl::Duration timeout) {
  const absl::StatusOr<Address> address = ParseAddress(target);
  Socket socket(MonotonicNow() + timeout);
  if (!address.ok() || !socket.Connect(*address)) return absl::OkStatus();
  const std::string& host = address->host;  // empty for a unix socket
  bool asked = false;
  const NoSigpipe no_sigpipe;
  const Owned<SSL_CTX> context = MakeContext(files, &asked);
  const Owned<SSL> ssl(context ? SSL_new(context.get()) : nullptr);
  if (!ssl || SSL_set_fd(ssl.get(), socket.fd()) != 1) return absl::OkStatus();
  if (!host.empty()) SSL_set_tlsext_host_name(ssl.get(), host.c_str());

  const auto [shaken, error] = Drive(ssl.get(), socket, [&] { return SSL_connect(ssl.get()); });
  const int reason = ERR_GET_REASON(ERR_peek_error());
  const bool alert = reason >= SSL_AD_REASON_OFFSET;
  const bool nonsense =
      error == SSL_ERROR_SSL && (reason == SSL_R_WRONG_VERSION_NUMBER ||
                                 reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_HTTP_REQUEST);
  if (!options.enabled)
    return shaken == 1 || alert || asked
               ? Failure(kTlsRequired, target, "speaks TLS only: use --tls (TlsOptions::enabled)")
               : absl::OkStatus();
  if (nonsense)
    return Failure(kTlsNotSpoken, target, "does not speak TLS: leave out --tls, or name another port");

  const Owned<X509> certificate(SSL_get1_peer_certificate(ssl.get()));
  if (certificate) {
    const long verified = SSL_get_verify_result(ssl.get());
    if (verified != X509_V_OK)
      return Failure(kTlsUntrusted, target, WhyUntrusted(certificate.get(), verified));
    if (!host.empty() && !IsFor(certificate.get(), host))
      return Failure(kTlsNameMismatch, target,
                     fmt::format("has a certificate for {}, not for {}: connect under one of its names",
                                 NamesIn(certificate.get()), Quoted(host)));
  }
  if (!asked) return absl::OkStatus();
  // From TLS 1.3 on the refusal of a client comes after the handshake; a server that is content speaks first.
  char byte = 0;
  const bool content =
      shaken == 1 && Drive(ssl.get(), socket, [&] { return SSL_read(ssl.get(), &byte, 1); }).first == 1;
  if (content) return absl::OkStatus();
  if (files.cert.empty())
    return Failure(kTlsClientRefused, target,
                   "asks for a client certificate: give --cert FILE and --key FILE");
  const std::string fault = TimeFault(FirstCertificate(files.cert).get());
  return Failure(kTlsClientRefused, target,
                 fmt::format("does not accept the client certificate in {}{}", Quoted(options.cert_file),
                             fault.empty() ? "" : ", which " + fault));
}

}  // namespace weir
