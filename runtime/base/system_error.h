// What the system says of an error.
#pragma once

#include <string>

namespace weir {

// The text of an errno. Where it is a right that is missing, also whose: a file that its owner can read is a
// riddle to who forgot that the process, in a container above all, is somebody else.
std::string SystemErrorText(int error);

}  // namespace weir
