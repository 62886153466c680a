// RawConnection: a TCP client that keeps no rules, and the frames of HTTP/2 (RFC 9113) that it sends, right
// or wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weir::testing {

// To 127.0.0.1. One thread.
class RawConnection {
 public:
  explicit RawConnection(int port);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawConnection& operator=(RawConnection&&) = delete;

  bool connected() const { return fd_ >= 0; }
  // What the server takes of it, which may be less: it may have closed already. Answers are thrown away
  // meanwhile, so that neither side waits for the other for ever.
  void Send(std::string_view bytes);
  // Says that no more comes and reads until the server closes, too. All that it says; false when it does not
  // close.
  bool ReadToEnd(std::string* answer);
  // Ends with a reset in place of a farewell.
  void Reset();

 private:
  int fd_;
};

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9
};
inline constexpr uint8_t kEndStream = 1, kEndHeaders = 4;

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload);
// A frame that announces `length` bytes, whatever follows.
std::string FrameHeader(uint32_t length, uint8_t type, uint8_t flags, uint32_t stream);
std::string Bytes32(uint32_t value);  // big-endian

using HeaderList = std::vector<std::pair<std::string, std::string>>;
// HPACK (RFC 7541) without its tables.
std::string HeaderBlock(const HeaderList& headers);
// Those of a gRPC call of `method`, "/package.Service/Method".
HeaderList CallHeaders(const std::string& method);
// Preface, settings and a call's headers on stream 1.
std::string Opening(const std::string& method);
// A message in gRPC's envelope.
std::string Envelope(uint8_t flag, uint32_t length, std::string_view bytes);

}  // namespace weir::testing
