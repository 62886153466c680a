#include "server/access/access.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Access>> Access::Create(const AccessOptions& options) {
  std::unique_ptr<Access> access(new Access(options));
  Access* const self = access.get();
  std::vector<FileWatch::Watched> watched;
  if (!options.api_keys.empty()) {
    watched.push_back({FileChanges({options.api_keys}), [self] { self->ReloadKeys(); }});
    WEIR_ASSIGN_OR_RETURN(KeyRing keys, KeyRing::Read(options.api_keys));
    self->Log(LogLevel::kInfo, fmt::format("{} API keys from {}", keys.keys().size(), options.api_keys));
    self->authenticator_ = std::make_unique<Authenticator>(std::move(keys));
  }
  if (options.tls.enabled()) {
    const TlsPaths& tls = options.tls;
    watched.push_back({FileChanges({tls.cert, tls.key, tls.client_ca}), [self] { self->ReloadTls(); }});
    WEIR_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsFiles(tls));
    self->SetTls(std::move(material));
  }
  if (!watched.empty()) self->watch_ = std::make_unique<FileWatch>(std::move(watched), options.poll_interval);
  return access;
}

Access::VersionedTls Access::Tls() const {
  MutexLock lock(&mu_);
  return tls_;
}

void Access::Log(LogLevel level, const std::string& line) const {
  if (options_.log) options_.log(level, line);
}

void Access::SetTls(TlsMaterial material) {
  for (const std::string& warning : material.warnings) Log(LogLevel::kWarning, warning);
  auto fresh = std::make_shared<const TlsMaterial>(std::move(material));
  MutexLock lock(&mu_);
  tls_ = {tls_.version + 1, std::move(fresh)};
}

void Access::ReloadKeys() {
  absl::StatusOr<KeyRing> keys = KeyRing::Read(options_.api_keys);
  if (!keys.ok())
    return Log(LogLevel::kWarning,
               fmt::format("the API keys stay as they were: {}", std::string(keys.status().message())));
  const size_t count = keys->keys().size();
  authenticator_->Replace(*std::move(keys));
  Log(LogLevel::kInfo, fmt::format("{} API keys from the changed {}", count, options_.api_keys));
}

void Access::ReloadTls() {
  absl::StatusOr<TlsMaterial> material = ReadTlsFiles(options_.tls);
  if (!material.ok())
    return Log(LogLevel::kWarning,
               fmt::format("the certificate stays as it was: {}", std::string(material.status().message())));
  SetTls(*std::move(material));
  Log(LogLevel::kInfo, fmt::format("new connections get the changed certificate of {}", options_.tls.cert));
}

}  // namespace weir
