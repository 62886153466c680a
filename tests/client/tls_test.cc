// TLS and API keys from the client's side: what it sends, and what it says when the two sides do not agree.
#include "client/tls.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "client/client.h"
#include "client/rpc_error.h"
#include "grpcpp/security/server_credentials.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "tests/client/child.h"
#include "tests/client/scripted_server.h"
#include "tests/support/certificates.h"

namespace weir {
namespace {

using ::testing::AllOf;
using testing::Authority;
using ::testing::HasSubstr;
using testing::Identity;
using ::testing::IsEmpty;
using testing::kLocalNames;
using ::testing::Not;

std::shared_ptr<grpc::ServerCredentials> Serving(const Identity& identity,
                                                 const Authority* clients = nullptr) {
  grpc::SslServerCredentialsOptions options(clients
                                                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({identity.key, identity.cert});
  if (clients) options.pem_root_certs = clients->cert();
  return grpc::SslServerCredentials(options);
}

class ClientTls : public ::testing::Test {
 protected:
  // How the library's Connect and one call end.
  static absl::Status Try(const std::string& address, const TlsOptions& tls, const std::string& key = "") {
    ConnectOptions options;
    options.timeout = absl::Seconds(60);
    options.tls = tls;
    options.api_key = key;
    const absl::StatusOr<WeirClient> client = WeirClient::Connect(address, options);
    return client.ok() ? client->GetServerInfo().status() : client.status();
  }
  static std::string ReasonOf(const absl::Status& status) { return GetErrorDetails(status).reason; }

  const Authority authority_{"authority"}, other_{"other authority"};
  const TempFile ca_{authority_.cert()}, other_ca_{other_.cert()};
  const TlsOptions trusting_{.enabled = true, .ca_file = ca_.path()};
};

TEST_F(ClientTls, CallsGoThroughWhereBothAgree) {
  ScriptedServer server(Serving(authority_.Issue("server", kLocalNames)));
  EXPECT_TRUE(Try(server.address(), trusting_).ok());
  EXPECT_TRUE(Try("localhost:" + std::to_string(server.port()), trusting_).ok());
}

TEST_F(ClientTls, APlaintextClientIsToldThatTheServerSpeaksTls) {
  ScriptedServer server(Serving(authority_.Issue("server", kLocalNames)));
  const absl::Status status = Try(server.address(), {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), kTlsRequired);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(server.address()), HasSubstr("--tls")));
  // Also where it wants a certificate besides.
  ScriptedServer strict(Serving(authority_.Issue("server", kLocalNames), &other_));
  EXPECT_EQ(ReasonOf(Try(strict.address(), {})), kTlsRequired);
}

TEST_F(ClientTls, ATlsClientIsToldThatTheServerSpeaksPlaintext) {
  ScriptedServer server;
  const absl::Status status = Try(server.address(), trusting_);
  EXPECT_EQ(ReasonOf(status), kTlsNotSpoken);
  EXPECT_THAT(std::string(status.message()), HasSubstr("leave out --tls"));
}

TEST_F(ClientTls, CertificatesThatAreNotTrustedAreExplained) {
  ScriptedServer server(Serving(authority_.Issue("server", kLocalNames)));
  for (const std::string& ca : {other_ca_.path(), std::string()}) {
    const absl::Status status = Try(server.address(), {.enabled = true, .ca_file = ca});
    EXPECT_EQ(ReasonOf(status), kTlsUntrusted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--ca"));
  }
}

TEST_F(ClientTls, CertificatesOutOfTheirTimeAreExplained) {
  // Another authority would not help.
  const auto out_of_time =
      AllOf(HasSubstr("the clock of this machine"), Not(HasSubstr("name the authority")));
  ScriptedServer expired(Serving(authority_.Issue("server", kLocalNames, -1)));
  absl::Status status = Try(expired.address(), trusting_);
  EXPECT_EQ(ReasonOf(status), kTlsUntrusted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("a certificate that expired on 20"),
                                                   HasSubstr("the server needs a new one"), out_of_time));
  ScriptedServer early(Serving(authority_.Issue("server", kLocalNames, 24, 12)));
  status = Try(early.address(), trusting_);
  EXPECT_EQ(ReasonOf(status), kTlsUntrusted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("is valid from 20"), HasSubstr("the server needs a new one"), out_of_time));
  const Authority old("old authority", -1);
  const TempFile old_ca(old.cert());
  ScriptedServer of_old(Serving(old.Issue("server", kLocalNames)));
  status = Try(of_old.address(), {.enabled = true, .ca_file = old_ca.path()});
  EXPECT_EQ(ReasonOf(status), kTlsUntrusted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the authority needs a new certificate"), out_of_time));
  // Of an unknown authority, and expired besides: the authority comes first.
  status = Try(expired.address(), {.enabled = true, .ca_file = other_ca_.path()});
  EXPECT_THAT(std::string(status.message()), HasSubstr("name the authority"));
}

TEST_F(ClientTls, AClientCertificateThatExpiredIsSaidToHave) {
  const Identity client = other_.Issue("client", {}, -1);
  const TempFile cert(client.cert), key(client.key);
  ScriptedServer server(Serving(authority_.Issue("server", kLocalNames), &other_));
  TlsOptions tls = trusting_;
  tls.cert_file = cert.path();
  tls.key_file = key.path();
  const absl::Status status = Try(server.address(), tls);
  EXPECT_EQ(ReasonOf(status), kTlsClientRefused);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(cert.path()), HasSubstr("which expired on 20")));
}

TEST_F(ClientTls, NamesThatDoNotMatchAreShown) {
  ScriptedServer server(Serving(authority_.Issue("server", {"DNS:weir.example.org", "IP:10.1.2.3"})));
  const absl::Status status = Try(server.address(), trusting_);
  EXPECT_EQ(ReasonOf(status), kTlsNameMismatch) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("weir.example.org"), HasSubstr("10.1.2.3"), HasSubstr("127.0.0.1")));
}

TEST_F(ClientTls, AServerThatWantsACertificateGetsOneOrIsUnderstood) {
  const Identity known = other_.Issue("client", {}), stranger = authority_.Issue("stranger", {});
  ScriptedServer server(Serving(authority_.Issue("server", kLocalNames), &other_));
  const TempFile cert(known.cert), key(known.key), strange_cert(stranger.cert), strange_key(stranger.key);
  TlsOptions tls = trusting_;
  EXPECT_EQ(ReasonOf(Try(server.address(), tls)), kTlsClientRefused);
  EXPECT_THAT(std::string(Try(server.address(), tls).message()), HasSubstr("--cert"));
  tls.cert_file = strange_cert.path();
  tls.key_file = strange_key.path();
  EXPECT_EQ(ReasonOf(Try(server.address(), tls)), kTlsClientRefused);
  EXPECT_THAT(std::string(Try(server.address(), tls).message()), HasSubstr(strange_cert.path()));
  tls.cert_file = cert.path();
  tls.key_file = key.path();
  EXPECT_TRUE(Try(server.address(), tls).ok()) << Try(server.address(), tls);
}

TEST_F(ClientTls, WhoSpeaksNeitherIsNotAccused) {
  // Listens, accepts, and closes.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 16), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread closer([listener] {
    for (int fd; (fd = accept(listener, nullptr, nullptr)) >= 0;) close(fd);
  });
  const std::string target = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_EQ(ReasonOf(Try(target, {})), kUnreachable);
  EXPECT_EQ(ReasonOf(Try(target, trusting_)), kUnreachable);
  shutdown(listener, SHUT_RDWR);
  closer.join();
  close(listener);
}

TEST_F(ClientTls, FilesThatAreNotRightAreNamed) {
  const Identity a = authority_.Issue("a", {}), b = authority_.Issue("b", {});
  const TempFile text("hello"), cert(a.cert), key(a.key), other_key(b.key), locked(testing::EncryptedKey());
  const auto refusal = [](const TlsOptions& options) {
    const auto files = ReadTlsFiles(options);
    EXPECT_EQ(ReasonOf(files.status()), kTlsFilesInvalid);
    return std::string(files.status().message());
  };
  EXPECT_THAT(refusal({true, "/nowhere/ca", "", ""}),
              AllOf(HasSubstr("/nowhere/ca"), HasSubstr("No such file")));
  EXPECT_THAT(refusal({true, "/", "", ""}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal({true, text.path(), "", ""}), AllOf(HasSubstr(text.path()), HasSubstr("CERTIFICATE")));
  EXPECT_THAT(refusal({true, "", cert.path(), ""}), HasSubstr("go together"));
  EXPECT_THAT(refusal({true, "", "", key.path()}), HasSubstr("go together"));
  EXPECT_THAT(refusal({true, "", key.path(), key.path()}), HasSubstr("no certificate"));
  EXPECT_THAT(refusal({true, "", cert.path(), text.path()}), HasSubstr("no private key"));
  EXPECT_THAT(refusal({true, "", cert.path(), locked.path()}), HasSubstr("passphrase"));
  EXPECT_THAT(refusal({true, "", cert.path(), other_key.path()}), HasSubstr("is not the key"));
}

TEST_F(ClientTls, TheKeyTravelsWithEveryCall) {
  ScriptedServer server(Serving(authority_.Issue("server", kLocalNames)));
  ASSERT_TRUE(Try(server.address(), trusting_, "weir_abc").ok());
  EXPECT_EQ(server.authorization(), "Bearer weir_abc");
  ASSERT_TRUE(Try(server.address(), trusting_).ok());
  EXPECT_EQ(server.authorization(), "");
  for (const char* malformed : {"two words", "line\n", "\xc3\xa9"}) {
    const absl::Status status = Try(server.address(), trusting_, malformed);
    EXPECT_EQ(ReasonOf(status), kApiKeyMalformed);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(malformed)));
  }
}

// The same through the command.

class CommandTls : public ClientTls {
 protected:
  static ChildResult Run(std::vector<std::string> arguments, const std::vector<std::string>& env = {}) {
    Child::Options options;
    options.env = env;
    Child child(arguments, options);
    return child.Wait();
  }
  ScriptedServer server_{Serving(authority_.Issue("server", kLocalNames))};
};

TEST_F(CommandTls, FlagsAndEnvironmentReachTheServer) {
  const TempFile key("weir_abc\n");
  const ChildResult flags = Run(
      {"--server", server_.address(), "--ca", ca_.path(), "--api-key-file", key.path(), "generate", "hi"});
  EXPECT_EQ(flags.exit, 0) << flags.err;
  EXPECT_EQ(flags.out, "ab\n");
  EXPECT_THAT(flags.err, IsEmpty());
  EXPECT_EQ(server_.authorization(), "Bearer weir_abc");
  const ChildResult environment =
      Run({"generate", "hi"}, {"WEIR_SERVER=" + server_.address(), "WEIR_TLS=true", "WEIR_CA=" + ca_.path(),
                               "WEIR_API_KEY=weir_def"});
  EXPECT_EQ(environment.exit, 0) << environment.err;
  EXPECT_EQ(server_.authorization(), "Bearer weir_def");
}

TEST_F(CommandTls, MistakesAreOneClearLine) {
  struct Mistake {
    std::vector<std::string> arguments;
    int exit;
    std::string says;
  };
  ScriptedServer plain;
  const TempFile empty("\n");
  for (const Mistake& mistake : std::vector<Mistake>{
           {{"--server", server_.address()}, 3, "speaks TLS only"},
           {{"--server", server_.address(), "--tls"}, 3, "not trusted here"},
           {{"--server", plain.address(), "--tls"}, 3, "does not speak TLS"},
           {{"--server", server_.address(), "--ca", "/nowhere"}, 2, "/nowhere"},
           {{"--server", server_.address(), "--cert", ca_.path()}, 2, "go together"},
           {{"--server", server_.address(), "--api-key-file", empty.path()}, 2, "holds no key"},
           {{"--server", server_.address(), "--api-key-file", "/nowhere"}, 2, "/nowhere"}}) {
    std::vector<std::string> arguments = mistake.arguments;
    arguments.insert(arguments.end(), {"models", "list"});
    const ChildResult result = Run(arguments);
    EXPECT_EQ(result.exit, mistake.exit) << result.err;
    EXPECT_THAT(result.err, HasSubstr(mistake.says));
    // One line, and none of the library's own.
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(CommandTls, AMissingOrWrongKeyIsSaidAsTheServerSaysIt) {
  server_.status =
      RichStatus(grpc::StatusCode::UNAUTHENTICATED, "API_KEY_MISSING", "this server wants an API key");
  const ChildResult result =
      Run({"--server", server_.address(), "--ca", ca_.path(), "models", "list", "--json"});
  EXPECT_EQ(result.exit, 1);
  EXPECT_EQ(nlohmann::json::parse(result.err)["error"]["reason"], "API_KEY_MISSING");
}

TEST_F(CommandTls, ThereIsNoOptionForAKeyThatPsWouldShow) {
  const ChildResult result = Run({"--server", server_.address(), "--api-key", "weir_abc", "info"});
  EXPECT_EQ(result.exit, 2);
}

}  // namespace
}  // namespace weir
