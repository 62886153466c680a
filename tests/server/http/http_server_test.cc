// The HTTP server: what it answers, and that nobody can hold it up.
#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "server/metrics/process_use.h"
#include "tests/support/http_client.h"
#include "tests/support/notification.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using testing::AnswerTo;
using ::testing::HasSubstr;
using testing::HttpAnswer;
using testing::HttpConnection;
using testing::HttpGet;

constexpr size_t kLarge = size_t{16} << 20;  // more than the system holds between two ends

HttpResponse Echo(const HttpRequest& request) {
  HttpResponse response;
  response.body = "path " + request.path;
  return response;
}

std::unique_ptr<HttpServer> Serve(HttpServer::Handler handler = Echo, const HttpLimits& limits = {}) {
  auto server = HttpServer::Start("127.0.0.1:0", "--flag", std::move(handler), limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServerTest, AnswersGetAndHead) {
  const auto server = Serve();
  const HttpAnswer got = HttpGet(server->port(), "/a/b?c=d#e");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "path /a/b");
  EXPECT_EQ(got.headers.at("content-length"), "9");
  EXPECT_EQ(got.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(got.headers.at("connection"), "close");
  EXPECT_EQ(got.headers.at("x-content-type-options"), "nosniff");
  const HttpAnswer head = AnswerTo(HttpConnection(server->port()), "HEAD /a HTTP/1.0\n\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.headers.at("content-length"), "7");
  EXPECT_EQ(AnswerTo(HttpConnection(server->port()), "GET http://host:1/x HTTP/1.1\r\n\r\n").body, "path /x");
  EXPECT_EQ(AnswerTo(HttpConnection(server->port()), "GET http://host HTTP/1.1\r\n\r\n").body, "path /");
}

TEST(HttpServerTest, BadRequestsGetAnErrorAndHarmNobody) {
  const auto server = Serve();
  const std::pair<std::string, int> kCases[] = {
      {"GET /\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\n\r\n", 400},
      {"G\x01T / HTTP/1.1\r\n\r\n", 400},
      {"G(T / HTTP/1.1\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\n\r\n", 400},
      {"GET /\t HTTP/1.1\r\n\r\n", 400},
      {"GET nowhere HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET / HTTQ/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n: no name\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400},
      {std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 24), 400},
      {std::string("\x16\x03\x01\0\xee", 5), 400},  // a TLS client
      {"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405},
      {"DELETE / HTTP/1.1\r\n\r\n", 405},
      {"GET / HTTP/1.1\r\nA: " + std::string(9000, 'a') + "\r\n\r\n", 431},
      {"GET /" + std::string(9000, 'a'), 431},
  };
  for (const auto& [request, status] : kCases)
    EXPECT_EQ(AnswerTo(HttpConnection(server->port()), request).status, status)
        << Quoted(std::string(request).substr(0, 60));
  // The answer comes through although the server reads no body.
  const HttpAnswer refused =
      AnswerTo(HttpConnection(server->port()),
               "PUT / HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + std::string(300000, 'x'));
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(HttpGet(server->port(), "/").status, 200);
}

TEST(HttpServerTest, RequestsInPieces) {
  const std::string request = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t size = 0; size < request.size(); ++size)
    EXPECT_FALSE(ParseHttpRequest(std::string_view(request).substr(0, size)).has_value()) << size;
  const auto server = Serve();
  const HttpConnection connection(server->port());
  for (const char c : request) {
    connection.Send(std::string_view(&c, 1));
    std::this_thread::yield();
  }
  EXPECT_THAT(connection.ReadToEnd(), HasSubstr("path /slow"));
}

TEST(HttpServerTest, ParsingSurvivesAnyBytes) {
  const std::string_view kPieces[] = {"GET ", "HEAD", " ",  "/",  "HTTP/1.1", "\r\n", "\n", "\r",  ":",
                                      "A",    "://",  "\0", "\t", "\xff",     "?",    "#",  "\x7f"};
  std::mt19937 random(1);
  int whole = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = i % 3 == 0 ? "GET / HTTP/1.1\r\n" : "";
    for (int n = static_cast<int>(random() % 12); n > 0; --n) bytes += kPieces[random() % std::size(kPieces)];
    const auto parsed = ParseHttpRequest(bytes);
    if (!parsed) continue;
    if (parsed->status != 200) continue;
    ++whole;
    EXPECT_EQ(parsed->request.path.front(), '/');
    EXPECT_EQ(parsed->request.path.find_first_of("\r\n ?#"), std::string::npos);
  }
  EXPECT_GT(whole, 100);
}

TEST(HttpServerTest, WhoSendsNothingOrReadsNothingHoldsUpNobody) {
  HttpLimits limits;
  limits.max_connections = 8;
  limits.request_time = absl::Minutes(10);
  limits.answer_time = absl::Minutes(10);
  const auto server = Serve(
      [](const HttpRequest& request) {
        HttpResponse response;
        response.body = request.path == "/large" ? std::string(kLarge, 'x') : "small";
        return response;
      },
      limits);
  std::deque<HttpConnection> held;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) {
      held.emplace_back(server->port());
      ASSERT_TRUE(held.back().connected());
      if (i % 3 == 1) held.back().Send("GET /never-ends");
      if (i % 3 == 2) held.back().Send("GET /large HTTP/1.1\r\n\r\n");  // never reads it
    }
    EXPECT_EQ(HttpGet(server->port(), "/").body, "small");
  }
  // There was no place for all: the oldest are gone. Nobody waits for the end of these.
  EXPECT_EQ(held[0].ReadToEnd(), "");
}

TEST(HttpServerTest, WhoTakesTooLongIsCutOff) {
  HttpLimits limits;
  limits.request_time = absl::Milliseconds(50);
  limits.answer_time = absl::Milliseconds(50);
  testing::Notification asked;
  const auto server = Serve(
      [&](const HttpRequest&) {
        asked.Notify();
        HttpResponse response;
        response.body = std::string(kLarge, 'x');
        return response;
      },
      limits);
  const HttpConnection silent(server->port());
  EXPECT_EQ(silent.ReadToEnd(), "");
  const int64_t before = ReadProcessUse().open_descriptors;
  const HttpConnection slow(server->port());
  slow.Send("GET / HTTP/1.1\r\n\r\n");
  asked.Wait();
  // Without reading, until the server has closed its end: this connection is then all that is left.
  EXPECT_TRUE(testing::WaitFor([&] { return ReadProcessUse().open_descriptors == before + 1; }));
  EXPECT_LT(slow.ReadToEnd().size(), kLarge);
}

TEST(HttpServerTest, Addresses) {
  const testing::TempDir dir;
  const std::string path = dir.File("socket");
  {
    auto server = HttpServer::Start("unix:" + path, "--flag", Echo);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ((*server)->port(), 0);
    EXPECT_EQ(AnswerTo(HttpConnection(path), "GET /u HTTP/1.1\r\n\r\n").body, "path /u");
    const auto second = HttpServer::Start("unix:" + path, "--flag", Echo);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("another program listens there"));
  }
  EXPECT_FALSE(HttpConnection(path).connected());
  auto by_name = HttpServer::Start("localhost:0", "--flag", Echo);
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  EXPECT_EQ(HttpGet((*by_name)->port(), "/").status, 200);
  const auto taken = HttpServer::Start(fmt::format("127.0.0.1:{}", (*by_name)->port()), "--flag", Echo);
  EXPECT_EQ(GetErrorDetails(taken.status()).reason, "ADDRESS_IN_USE");
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("choose another address with --flag"));
  const auto v6 = HttpServer::Start("[::1]:0", "--flag", Echo);
  if (v6.ok()) EXPECT_GT((*v6)->port(), 0);
}

}  // namespace
}  // namespace weir
