// Names that a client makes up for its sessions.
#pragma once

#include <string>

namespace weir {

// 128 random bits of the system, in hexadecimal.
std::string RandomSessionId();

}  // namespace weir
