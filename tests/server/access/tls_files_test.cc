// What is wrong with a file of certificates or keys is said at once and names the file.
#include "server/access/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using testing::Authority;
using ::testing::HasSubstr;

class TlsFiles : public ::testing::Test {
 protected:
  std::string Refusal(const TlsPaths& paths) {
    const auto material = ReadTlsFiles(paths);
    EXPECT_FALSE(material.ok());
    return std::string(material.status().message());
  }

  testing::TempDir dir_;
  const Authority authority_{"authority"};
  const testing::Identity server_ = authority_.Issue("server", testing::kLocalNames);
  const std::string cert_ = dir_.Write("tls.crt", server_.cert);
  const std::string key_ = dir_.Write("tls.key", server_.key);
  const std::string ca_ = dir_.Write("ca.crt", authority_.cert());
};

TEST_F(TlsFiles, AGoodPairIsRead) {
  const auto material = ReadTlsFiles({cert_, key_, ca_});
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_EQ(material->cert, server_.cert);
  EXPECT_EQ(material->key, server_.key);
  EXPECT_EQ(material->client_ca, authority_.cert());
  EXPECT_TRUE(material->warnings.empty());
  // With the chain behind it.
  EXPECT_TRUE(ReadTlsFiles({dir_.Write("chain", server_.cert + authority_.cert()), key_, ""}).ok());
}

TEST_F(TlsFiles, FaultsNameTheFileAndTheRemedy) {
  const std::string none = dir_.File("none"), text = dir_.Write("text", "hello\n");
  EXPECT_THAT(Refusal({none, key_, ""}), AllOf(HasSubstr("--tls-cert"), HasSubstr(none)));
  EXPECT_THAT(Refusal({cert_, none, ""}), AllOf(HasSubstr("--tls-key"), HasSubstr(none)));
  EXPECT_THAT(Refusal({cert_, key_, none}), AllOf(HasSubstr("--tls-client-ca"), HasSubstr(none)));
  EXPECT_THAT(Refusal({text, key_, ""}), AllOf(HasSubstr(text), HasSubstr("BEGIN CERTIFICATE")));
  EXPECT_THAT(Refusal({cert_, text, ""}), AllOf(HasSubstr(text), HasSubstr("BEGIN PRIVATE KEY")));
  EXPECT_THAT(Refusal({cert_, key_, text}), HasSubstr(text));
  EXPECT_THAT(Refusal({key_, cert_, ""}), AllOf(HasSubstr(key_), HasSubstr("BEGIN CERTIFICATE")));
  EXPECT_THAT(Refusal({dir_.path(), key_, ""}), HasSubstr("no regular file"));
  const std::string empty = dir_.Write("empty", "");
  EXPECT_THAT(Refusal({empty, key_, ""}), HasSubstr(empty));
  EXPECT_THAT(Refusal({cert_, empty, ""}), HasSubstr(empty));
  const std::string cut = dir_.Write("cut", server_.cert + authority_.cert().substr(0, 200));
  EXPECT_THAT(Refusal({cut, key_, ""}), AllOf(HasSubstr(cut), HasSubstr("damaged")));
}

TEST_F(TlsFiles, AKeyOfAnotherCertificateIsRefused) {
  const std::string other = dir_.Write("other", authority_.Issue("other", {}).key);
  EXPECT_THAT(Refusal({cert_, other, ""}), AllOf(HasSubstr(cert_), HasSubstr(other)));
  // The chain in the wrong order.
  EXPECT_THAT(Refusal({dir_.Write("chain", authority_.cert() + server_.cert), key_, ""}),
              HasSubstr("must be its first"));
}

TEST_F(TlsFiles, AKeyWithAPassphraseIsRefusedWithoutAsking) {
  EXPECT_THAT(Refusal({cert_, dir_.Write("locked", testing::EncryptedKey()), ""}), HasSubstr("passphrase"));
}

TEST_F(TlsFiles, AnUnreadableFileIsRefused) {
  chmod(key_.c_str(), 0);
  // Root reads everything, so it steps down for the moment.
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;
  if (root) ASSERT_EQ(chown(dir_.path().c_str(), kNobody, static_cast<gid_t>(-1)), 0);
  if (root) ASSERT_EQ(seteuid(kNobody), 0);
  const std::string refusal = Refusal({cert_, key_, ""});
  if (root) ASSERT_EQ(seteuid(0), 0);
  EXPECT_THAT(refusal, AllOf(HasSubstr(key_), HasSubstr("Permission denied")));
}

TEST_F(TlsFiles, AnExpiredCertificateIsAWarning) {
  const testing::Identity old = authority_.Issue("old", testing::kLocalNames, -1);
  const auto material = ReadTlsFiles({dir_.Write("old.crt", old.cert), dir_.Write("old.key", old.key), ""});
  ASSERT_TRUE(material.ok()) << material.status();
  ASSERT_EQ(material->warnings.size(), 1u);
  EXPECT_THAT(material->warnings[0], AllOf(HasSubstr("expired"), HasSubstr("old.crt")));
}

}  // namespace
}  // namespace weir
