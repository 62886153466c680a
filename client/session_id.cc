#include "client/session_id.h"

#include <random>

#include "fmt/format.h"

namespace weir {

std::string RandomSessionId() {
  std::random_device entropy;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", entropy());
  return id;
}

}  // namespace weir
