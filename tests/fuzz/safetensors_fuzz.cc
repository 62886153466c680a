// A safetensors file: whatever is accepted tiles the file and can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fmt/format.h"
#include "model/weights/safetensors.h"
#include "runtime/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const int fd = memfd_create("safetensors", MFD_CLOEXEC);
  WEIR_CHECK(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size));
  {
    const auto file = SafetensorsFile::Open(fmt::format("/proc/self/fd/{}", fd));
    if (file.ok()) {
      uint64_t header = 0;
      std::memcpy(&header, data, sizeof(header));
      uint64_t bytes = sizeof(header) + header;
      for (const SafetensorsEntry& entry : file->tensors()) {
        WEIR_CHECK(entry.offset <= size && entry.num_bytes <= size - entry.offset);
        WEIR_CHECK(file->Find(entry.name) != nullptr);
        bytes += entry.num_bytes;
        const auto tensor = file->Read(entry);
        WEIR_CHECK(tensor.ok() == entry.dtype.has_value());
        if (tensor.ok()) {
          WEIR_CHECK(std::ssize(tensor->ToF32()) == tensor->num_elements());
          (void)tensor->CheckFinite();
        }
      }
      WEIR_CHECK(bytes == size);
    } else {
      WEIR_CHECK(file.status().message().size() < 4096);
    }
  }
  close(fd);
  return 0;
}
