// grpc.reflection v1 and v1alpha. gRPC's own plugin cannot ask for a key, so these go through the gate as
// everything else does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/impl/service_type.h"
#include "server/grpc/gate.h"

namespace weir {

// One service per version, to be registered. `services`: the full names to list, besides these. The gate
// outlives them.
std::vector<std::unique_ptr<grpc::Service>> MakeReflectionServices(const Gate* gate,
                                                                   std::vector<std::string> services);

}  // namespace weir
