// TLS for the listening port, with certificates that may change while it is open.
#pragma once

#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "server/access/access.h"

namespace weir {

// Each new connection gets what `access->Tls()` holds then; those that are open go on as they are. Clients
// must show a certificate when there is a client_ca now: that much does not change later. `access` outlives
// the server.
//
// gRPC's FileWatcherCertificateProvider is not used: while a new certificate stands beside the old key, it
// leaves the server with neither, and no handshake succeeds.
std::shared_ptr<grpc::ServerCredentials> ReloadingTlsCredentials(const Access* access);

}  // namespace weir
