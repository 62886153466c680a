#include "tests/e2e/fault_run/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.h"

namespace weir::testing {
namespace {

constexpr int kPatienceMs = 60'000;

// HPACK's string without Huffman coding.
void AppendString(std::string_view text, std::string* out) {
  if (text.size() < 127) {
    out->push_back(static_cast<char>(text.size()));
  } else {
    out->push_back(127);
    size_t rest = text.size() - 127;
    for (; rest >= 128; rest >>= 7) out->push_back(static_cast<char>(128 | (rest & 127)));
    out->push_back(static_cast<char>(rest));
  }
  out->append(text);
}

}  // namespace

RawConnection::RawConnection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (fd_ >= 0 && connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd_);
    fd_ = -1;
  }
}

RawConnection::~RawConnection() {
  if (fd_ >= 0) close(fd_);
}

void RawConnection::Send(std::string_view bytes) {
  while (fd_ >= 0 && !bytes.empty()) {
    pollfd entry = {fd_, POLLIN | POLLOUT, 0};
    if (poll(&entry, 1, kPatienceMs) <= 0) return;
    if ((entry.revents & POLLIN) != 0) {
      char answer[16384];
      if (recv(fd_, answer, sizeof(answer), MSG_DONTWAIT) == 0) return;
    }
    if ((entry.revents & POLLOUT) == 0) continue;
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return;
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool RawConnection::ReadToEnd(std::string* answer) {
  shutdown(fd_, SHUT_WR);
  for (;;) {
    pollfd entry = {fd_, POLLIN, 0};
    if (poll(&entry, 1, kPatienceMs) <= 0) return false;
    char bytes[16384];
    const ssize_t n = read(fd_, bytes, sizeof(bytes));
    if (n <= 0) return true;  // a reset is an end
    answer->append(bytes, static_cast<size_t>(n));
  }
}

void RawConnection::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(std::exchange(fd_, -1));
}

std::string Bytes32(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

std::string FrameHeader(uint32_t length, uint8_t type, uint8_t flags, uint32_t stream) {
  std::string header = Bytes32(length).substr(1);
  header.push_back(static_cast<char>(type));
  header.push_back(static_cast<char>(flags));
  return header + Bytes32(stream);
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  return FrameHeader(static_cast<uint32_t>(payload.size()), type, flags, stream).append(payload);
}

std::string HeaderBlock(const HeaderList& headers) {
  std::string block;
  for (const auto& [name, value] : headers) {
    block.push_back(0);  // a literal that enters no table
    AppendString(name, &block);
    AppendString(value, &block);
  }
  return block;
}

HeaderList CallHeaders(const std::string& method) {
  return {{":method", "POST"},         {":scheme", "http"}, {":path", method},
          {":authority", "localhost"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
}

std::string Opening(const std::string& method) {
  return std::string(kPreface) + Frame(kSettings, 0, 0, "") +
         Frame(kHeaders, kEndHeaders, 1, HeaderBlock(CallHeaders(method)));
}

std::string Envelope(uint8_t flag, uint32_t length, std::string_view bytes) {
  return (std::string(1, static_cast<char>(flag)) + Bytes32(length)).append(bytes);
}

}  // namespace weir::testing
