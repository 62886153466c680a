#include "server/grpc/tls_credentials.h"

#include <string>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"

namespace weir {
namespace {

// What gRPC asks for certificates; it owns this, and asks under a lock of its own.
struct Fetcher {
  const Access* access;
  int64_t version = 0;  // that gRPC has
};

grpc_ssl_certificate_config_reload_status Fetch(void* user_data,
                                                grpc_ssl_server_certificate_config** config) {
  auto* fetcher = static_cast<Fetcher*>(user_data);
  const Access::VersionedTls tls = fetcher->access->Tls();
  if (tls.version == fetcher->version) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {tls.material->key.c_str(), tls.material->cert.c_str()};
  // gRPC insists on authorities even where it asks no client for a certificate; these then have no use.
  const std::string& ca = tls.material->client_ca.empty() ? tls.material->cert : tls.material->client_ca;
  *config = grpc_ssl_server_certificate_config_create(ca.c_str(), &pair, 1);
  fetcher->version = tls.version;
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

class ReloadingTls final : public grpc::ServerCredentials {
 public:
  explicit ReloadingTls(const Access* access) : fetcher_{access} {
    const bool clients = !access->Tls().material->client_ca.empty();
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            clients ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            Fetch, &fetcher_));
  }
  ~ReloadingTls() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  Fetcher fetcher_;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingTlsCredentials(const Access* access) {
  return std::make_shared<ReloadingTls>(access);
}

}  // namespace weir
