// Messages that are too long, and bytes that are no messages, on each layer: HTTP/2, gRPC's envelope,
// protobuf.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "fmt/format.h"
#include "google/protobuf/descriptor.h"
#include "tests/e2e/fault_run/fault_harness.h"
#include "tests/e2e/fault_run/raw_connection.h"
#include "tests/support/server_fixture.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/models.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir::testing {
namespace {

class MessageFaults : public FaultRun {};

constexpr char kGenerate[] = "/weir.v1.Generation/Generate";

// Every method of weir.v1, as "/weir.v1.Service/Method".
std::vector<std::string> Methods() {
  std::vector<std::string> methods;
  for (const char* name : {"Generation", "Models", "Sessions", "Server"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        fmt::format("weir.v1.{}", name));
    WEIR_CHECK(service != nullptr);
    for (int i = 0; i < service->method_count(); ++i)
      methods.push_back(fmt::format("/{}/{}", service->full_name(), service->method(i)->name()));
  }
  return methods;
}

std::string RandomBytes(std::mt19937* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

TEST_F(MessageFaults, MessagesThatAreTooLong) {
  StartServer();
  const std::string too_long(9 << 20, 'a');
  Endure([&] {
    const auto channel = NewChannel();
    const auto stub = v1::Generation::NewStub(channel);
    for (int i = 0; i < 4; ++i) {
      v1::GenerateRequest request = Request(kTwins[i % 2], 1);
      request.mutable_prompt()->set_text(too_long);  // more than a message
      EXPECT_EQ(Generate(*stub, request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      request.mutable_prompt()->set_text(too_long.substr(0, 5 << 20));  // more than a prompt
      EXPECT_EQ(Generate(*stub, request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      request.set_model(ModelResource("tales-softmax"));  // the other one has room for everything
      request.mutable_prompt()->mutable_token_ids()->mutable_ids()->Resize(2'000'000, 1);
      EXPECT_EQ(Generate(*stub, request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);

      // gRPC now and then closes the connection that brought such metadata: it has one of its own.
      const auto own = v1::Generation::NewStub(NewChannel());
      grpc::ClientContext context;
      context.AddMetadata("x-session-id", too_long.substr(0, 64 << 10));
      EXPECT_FALSE(Generate(*own, Request(kTwins[0], 1), &context).status.ok());
    }
    // An import that announces more than there can be, and one whose pieces are too long.
    const auto sessions = v1::Sessions::NewStub(channel);
    for (const int64_t total : {int64_t{1} << 60, int64_t{3} << 20}) {
      grpc::ClientContext context;
      v1::Session session;
      const auto upload = sessions->ImportSession(&context, &session);
      v1::ImportSessionRequest piece;
      piece.set_total_bytes(total);
      piece.set_data(too_long.substr(0, 2 << 20));
      upload->Write(piece);
      const grpc::Status status = upload->Finish();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    }
  });
  StopServer();
}

// A small message that grows a thousandfold when it is unpacked.
TEST_F(MessageFaults, CompressedMessagesAreNotLongerUnpacked) {
  StartServer();
  const std::string zeros(size_t{128} << 20, '\0');
  Endure([&] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
    const auto channel = grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
    std::string answer;
    EXPECT_FALSE(RawCall(channel, kGenerate, zeros, &answer).ok());
  });
  if (!kSanitized) EXPECT_LT(PeakBytes() - ResidentBytes(), int64_t{64} << 20);
  StopServer();
}

TEST_F(MessageFaults, BytesThatAreNoMessage) {
  StartServer();
  const std::vector<std::string> methods = Methods();
  EXPECT_GT(methods.size(), 15u);
  Endure([&] {
    std::mt19937 random(5);
    const auto channel = NewChannel();
    std::string answer;
    for (const std::string& method : methods) {
      // The first byte is of no kind of field.
      for (const size_t size : {1, 7, 1000, 100'000}) {
        const grpc::Status status = RawCall(channel, method, "\x0f" + RandomBytes(&random, size), &answer);
        EXPECT_FALSE(status.ok()) << method;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << method;
      }
      // A field of a length that does not come, and groups within groups.
      EXPECT_FALSE(RawCall(channel, method, "\x0a\xff\xff\xff\xff\x07", &answer).ok()) << method;
      EXPECT_FALSE(RawCall(channel, method, std::string(100'000, '\x0b'), &answer).ok()) << method;
    }
    EXPECT_EQ(RawCall(channel, "/weir.v1.Generation/None", "", &answer).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  });
  StopServer();
}

std::string Call(const HeaderList& headers, const std::string& data = "") {
  return std::string(kPreface) + Frame(kSettings, 0, 0, "") +
         Frame(kHeaders, kEndHeaders, 1, HeaderBlock(headers)) + Frame(kData, kEndStream, 1, data);
}

// Each is the whole of what one connection says.
std::vector<std::string> BrokenConnections() {
  const std::string preface = std::string(kPreface) + Frame(kSettings, 0, 0, ""), call = Opening(kGenerate);
  HeaderList get = CallHeaders(kGenerate), text = get, no_path = get, twice = get, capital = get;
  get[0].second = "GET";
  text.back().second = "text/plain";
  no_path.erase(no_path.begin() + 2);
  twice.insert(twice.begin(), twice[0]);
  capital.emplace_back("X-Capital", "a");
  HeaderList timeout = CallHeaders(kGenerate), encoding = timeout, status = timeout;
  timeout.emplace_back("grpc-timeout", "99999999999999999999H");
  encoding.emplace_back("grpc-encoding", "none-such");
  status.emplace_back("grpc-status", "0");
  std::mt19937 random(6);
  return {
      RandomBytes(&random, 65536),
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + RandomBytes(&random, 500),  // TLS
      preface + RandomBytes(&random, 65536),
      std::string(kPreface) + Frame(kSettings, 0, 0, "12345"),
      std::string(kPreface) + Frame(kSettings, 0, 0, std::string("\0\4\xff\xff\xff\xff", 6)),  // window
      std::string(kPreface) + Frame(kData, 0, 1, "no settings"),
      preface + FrameHeader(0xffffff, kData, 0, 1) + std::string(100'000, 'x'),
      preface + Frame(kData, 0, 1, "of no stream"),
      preface + Frame(kHeaders, kEndHeaders, 2, HeaderBlock(CallHeaders(kGenerate))),
      preface + Frame(kHeaders, kEndHeaders, 1, std::string(100, '\xff')),
      preface + Frame(kHeaders, 0, 1, "") + Frame(kPing, 0, 0, "12345678"),
      preface + Frame(kContinuation, kEndHeaders, 1, ""),
      preface + Frame(kWindowUpdate, 0, 0, Bytes32(0)),
      preface + Frame(kWindowUpdate, 0, 0, Bytes32(0x7fffffff)) +
          Frame(kWindowUpdate, 0, 0, Bytes32(0x7fffffff)),
      preface + Frame(kPing, 0, 0, "short"),
      preface + Frame(kGoAway, 0, 0, ""),
      preface + Frame(kRstStream, 0, 7, Bytes32(8)),
      preface + Frame(77, 0xff, 5, "a kind of the future"),
      call + Frame(kData, kEndStream, 1, Envelope(0, 0x7fffffff, "short")),
      call + Frame(kData, kEndStream, 1, Envelope(0, 10, "abc")),
      call + Frame(kData, kEndStream, 1, Envelope(0x7f, 3, "abc")),
      call + Frame(kData, kEndStream, 1, Envelope(1, 3, "abc")),
      call + Frame(kData, kEndStream, 1, ""),
      call + Frame(kData, kEndStream, 1, Envelope(0, 0, "") + Envelope(0, 0, "")),
      call + Frame(kData, 0, 1, Envelope(0, 8 << 20, "in the midst of it, no more")),
      Call(get),
      Call(text),
      Call(no_path),
      Call(twice),
      Call(capital),
      Call(timeout),
      Call(encoding),
      Call(status),
      Call(CallHeaders(std::string(100'000, '/'))),
  };
}

// Much of what is cheap to say, on one connection each.
std::vector<std::string> Floods() {
  const std::string preface = std::string(kPreface) + Frame(kSettings, 0, 0, "");
  const std::string headers = HeaderBlock(CallHeaders(kGenerate));
  std::string pings = preface, settings = preface, resets = preface, empties = Opening(kGenerate);
  std::string continued = preface + Frame(kHeaders, 0, 1, headers);
  for (int i = 0; i < Many(5000); ++i) {
    pings += Frame(kPing, 0, 0, "12345678");
    settings += Frame(kSettings, 0, 0, "");
    empties += Frame(kData, 0, 1, "");
    const uint32_t stream = 2 * static_cast<uint32_t>(i) + 1;
    resets += Frame(kHeaders, kEndHeaders, stream, headers) + Frame(kRstStream, 0, stream, Bytes32(8));
  }
  const std::string piece = HeaderBlock({{"a", std::string(16'000, 'b')}});
  for (int i = 0; i < Many(2000); ++i) continued += Frame(kContinuation, 0, 1, piece);
  return {pings, settings, resets, empties, continued};
}

TEST_F(MessageFaults, BrokenHttp2) {
  StartServer();
  const std::vector<std::string> broken = BrokenConnections();
  Endure([&] {
    for (size_t i = 0; i < broken.size(); ++i) {
      RawConnection connection(port());
      ASSERT_TRUE(connection.connected());
      connection.Send(broken[i]);
      std::string answer;
      EXPECT_TRUE(connection.ReadToEnd(&answer)) << i;
    }
  });
  StopServer();
}

TEST_F(MessageFaults, FloodsOfSmallFrames) {
  StartServer();
  const std::vector<std::string> floods = Floods();
  Endure([&] {
    for (size_t i = 0; i < floods.size(); ++i) {
      RawConnection connection(port());
      ASSERT_TRUE(connection.connected());
      connection.Send(floods[i]);
      std::string answer;
      EXPECT_TRUE(connection.ReadToEnd(&answer)) << i;
    }
  });
  if (!kSanitized) EXPECT_LT(PeakBytes() - ResidentBytes(), int64_t{128} << 20);
  StopServer();
}

}  // namespace
}  // namespace weir::testing
