// TLS over a real socket: who is let in, and certificates that change under an open port.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/certificates.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using testing::Authority;
using testing::FixtureOptions;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::Identity;
using testing::kLocalNames;
using testing::ServerFixture;
using testing::WaitFor;

class TlsTest : public ::testing::Test {
 protected:
  FixtureOptions Options(bool clients) {
    FixtureOptions options;
    options.server.access.tls = {dir_.Write("tls.crt", first_.cert), dir_.Write("tls.key", first_.key), ""};
    if (clients) options.server.access.tls.client_ca = dir_.Write("clients.crt", clients_.cert());
    options.server.access.poll_interval = absl::Milliseconds(2);
    options.server.access.log = [this](LogLevel, const std::string& line) {
      MutexLock lock(&mu_);
      log_ += line + "\n";
    };
    options.credentials = Trusting(authority_);
    return options;
  }
  std::string log() {
    MutexLock lock(&mu_);
    return log_;
  }

  static std::shared_ptr<grpc::ChannelCredentials> Trusting(const Authority& authority,
                                                            const Identity& client = {}) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority.cert();
    options.pem_cert_chain = client.cert;
    options.pem_private_key = client.key;
    return grpc::SslCredentials(options);
  }
  // How a call on a connection of its own ends.
  static grpc::Status Try(const ServerFixture& fixture,
                          const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto stub = v1::Generation::NewStub(grpc::CreateCustomChannel(fixture.address(), credentials, arguments));
    return Generate(*stub, GreedyRequest({1}, 1)).status;
  }

  testing::TempDir dir_;
  const Authority authority_{"authority"}, second_authority_{"second authority"}, clients_{"clients"};
  const Identity first_ = authority_.Issue("first", kLocalNames);
  const Identity second_ = second_authority_.Issue("second", kLocalNames);
  Mutex mu_;
  std::string log_ ABSL_GUARDED_BY(mu_);
};

TEST_F(TlsTest, ServesWhoTrustsItAndNobodyInPlaintext) {
  ServerFixture fixture(Options(false));
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 3)).status.ok());
  EXPECT_EQ(Try(fixture, grpc::InsecureChannelCredentials()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Try(fixture, Trusting(second_authority_)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Try(fixture, Trusting(authority_)).ok());
}

TEST_F(TlsTest, ClientsShowACertificateWhereOneIsAskedFor) {
  ServerFixture fixture(Options(true));
  const Identity known = clients_.Issue("client", {});
  const Identity stranger = authority_.Issue("stranger", {});
  EXPECT_TRUE(Try(fixture, Trusting(authority_, known)).ok());
  EXPECT_EQ(Try(fixture, Trusting(authority_)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Try(fixture, Trusting(authority_, stranger)).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, NewConnectionsGetTheNewCertificateAndOldStreamsGoOn) {
  FixtureOptions options = Options(false);
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", {.step_time = absl::Milliseconds(1)}));
  ServerFixture fixture(std::move(models), options);
  grpc::ClientContext context;
  auto stream = fixture.generation().Generate(&context, GreedyRequest({1}, 1'000'000'000));
  v1::GenerateResponse message;
  ASSERT_TRUE(stream->Read(&message));

  fs::rename(dir_.Write("new.crt", second_.cert), dir_.File("tls.crt"));
  fs::rename(dir_.Write("new.key", second_.key), dir_.File("tls.key"));
  ASSERT_TRUE(WaitFor([&] { return Try(fixture, Trusting(second_authority_)).ok(); })) << log();
  EXPECT_FALSE(Try(fixture, Trusting(authority_)).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream->Read(&message));
  // New calls on the old connection too.
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 3)).status.ok());
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(TlsTest, ACertificateWithoutItsKeyChangesNothing) {
  ServerFixture fixture(Options(false));
  // The new certificate alone: half of a renewal.
  fs::rename(dir_.Write("new.crt", second_.cert), dir_.File("tls.crt"));
  ASSERT_TRUE(WaitFor([&] { return log().find("stays as it was") != std::string::npos; }));
  EXPECT_THAT(log(), HasSubstr("is not the key of the certificate"));
  EXPECT_TRUE(Try(fixture, Trusting(authority_)).ok());
  // The other half.
  fs::rename(dir_.Write("new.key", second_.key), dir_.File("tls.key"));
  EXPECT_TRUE(WaitFor([&] { return Try(fixture, Trusting(second_authority_)).ok(); })) << log();
}

TEST_F(TlsTest, TheAuthorityOfClientsChangesToo) {
  ServerFixture fixture(Options(true));
  const Identity old_client = clients_.Issue("old", {});
  const Authority new_clients("new clients");
  const Identity new_client = new_clients.Issue("new", {});
  ASSERT_TRUE(Try(fixture, Trusting(authority_, old_client)).ok());
  ASSERT_FALSE(Try(fixture, Trusting(authority_, new_client)).ok());
  fs::rename(dir_.Write("new.ca", new_clients.cert()), dir_.File("clients.crt"));
  EXPECT_TRUE(WaitFor([&] { return Try(fixture, Trusting(authority_, new_client)).ok(); })) << log();
  EXPECT_FALSE(Try(fixture, Trusting(authority_, old_client)).ok());
}

TEST_F(TlsTest, AWrongFileKeepsTheServerFromStarting) {
  ServerOptions options = Options(false).server;
  options.listen = "127.0.0.1:0";
  options.access.tls.key = dir_.Write("other.key", second_.key);
  const auto server = WeirServer::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("other.key"));
}

}  // namespace
}  // namespace weir
