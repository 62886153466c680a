// Sessions that are not where their hash leads are found after a reload of HAProxy, and by a proxy that takes
// another one's place: each learns from its peers where sessions went.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/e2e/replicas/replicas.h"
#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

class PeerProxies : public Replicas {
 protected:
  std::unique_ptr<Proxy> StartProxy(const std::string& name) const {
    return std::make_unique<Proxy>("haproxy",
                                   std::vector<std::string>{replicas_[0]->socket(), replicas_[1]->socket()},
                                   HaProxyPlace{.name = name, .peers_folder = dir_.path()});
  }
  // A session on replica 1 whose hash leads to replica 0, as after a move.
  void StartWithAMovedSession(const std::string& proxy_name) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_NO_FATAL_FAILURE(replicas_[i]->Start(absl::ZeroDuration()));
      Mark(i);
    }
    proxy_ = StartProxy(proxy_name);
    for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(i, false));
    moved_ = SessionOn(0);
    replicas_[0]->process().Signal(SIGKILL);
    replicas_[0]->process().Wait();
    ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(1, true));
    Create(moved_);
    ASSERT_NO_FATAL_FAILURE(replicas_[0]->Start(absl::ZeroDuration()));
    Mark(0);
    ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));
    proxy_->WaitUntilKnows(moved_, 1);
  }
  absl::Status Find() const {
    v1::GetSessionRequest request;
    request.set_name(SessionResource(moved_));
    return Connect().GetSession(request).status();
  }

  std::string moved_;
};

INSTANTIATE_TEST_SUITE_P(Proxies, PeerProxies, ::testing::Values("haproxy"), KindName);

TEST_P(PeerProxies, AMovedSessionIsFoundAfterAReload) {
  ASSERT_NO_FATAL_FAILURE(StartWithAMovedSession(""));
  for (int i = 0; i < 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(proxy_->HandOver());
    ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));  // so it could go astray
    const absl::Status found = Find();
    EXPECT_TRUE(found.ok()) << found;
  }
}

TEST_P(PeerProxies, AMovedSessionIsFoundWhenEitherProxyHasBeenKilledAndReplaced) {
  ASSERT_NO_FATAL_FAILURE(StartWithAMovedSession("weir-proxy-0"));
  // One that comes later learns what was before.
  std::unique_ptr<Proxy> other = StartProxy("weir-proxy-1");
  other->WaitUntilKnows(moved_, 1);
  // While both are there, each hears what the other learns.
  Create("made-later");
  other->WaitUntilKnows("made-later", HolderOf("made-later"));
  for (const char* name : {"weir-proxy-0", "weir-proxy-1"}) {
    proxy_->Kill();
    proxy_ = std::move(other);
    ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));
    const absl::Status found = Find();
    EXPECT_TRUE(found.ok()) << found;
    other = StartProxy(name);
    other->WaitUntilKnows(moved_, 1);
  }
}

}  // namespace
}  // namespace weir::testing
