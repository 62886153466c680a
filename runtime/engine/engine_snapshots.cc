// Engine: the calls that copy state. In pieces, so that a session of hundreds of megabytes holds no step up.
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_call.h"
#include "runtime/engine/model_runner.h"

namespace weir {
namespace {

// Between two steps so long, and then one piece at most.
constexpr absl::Duration kCopyTime = absl::Milliseconds(1);

}  // namespace

// --- any thread ---

void Engine::UpdateSession(std::string id, std::string owner, std::string etag, absl::Duration ttl,
                           Done<SessionInfo> done) {
  if (draining()) return RefuseAtOnce(Draining(), &metrics_, &done);
  Call<SessionInfo>(std::move(done),
                    [this, id = std::move(id), owner = std::move(owner), etag = std::move(etag),
                     ttl]() -> absl::StatusOr<SessionInfo> {
                      WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(id, owner));
                      return runner->sessions().Update(id, owner, etag, ttl, MonotonicNow());
                    });
}

void Engine::CreateSnapshot(std::string session, std::string owner, std::string etag, std::string snapshot,
                            Done<SnapshotInfo> done) {
  if (draining()) return RefuseAtOnce(Draining(), &metrics_, &done);
  CallInPieces<SnapshotInfo>(
      &metrics_.snapshot_duration, std::move(done),
      [this, session = std::move(session), owner = std::move(owner), etag = std::move(etag),
       snapshot = std::move(snapshot)]() -> absl::StatusOr<PiecewiseWork<SnapshotInfo>> {
        WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(session, owner));
        SessionTable& sessions = runner->sessions();
        WEIR_ASSIGN_OR_RETURN(const Session* original, sessions.Find(session, owner));
        WEIR_RETURN_IF_ERROR(CheckQuota(owner, 0, sessions.NewSnapshotBytes(*original)));
        return sessions.CreateSnapshot(session, owner, etag, snapshot);
      });
}

void Engine::GetSnapshot(std::string session, std::string owner, std::string snapshot,
                         Done<SnapshotInfo> done) {
  Call<SnapshotInfo>(std::move(done),
                     [this, session = std::move(session), owner = std::move(owner),
                      snapshot = std::move(snapshot)]() -> absl::StatusOr<SnapshotInfo> {
                       WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(session, owner));
                       return runner->sessions().GetSnapshot(session, owner, snapshot);
                     });
}

void Engine::ListSnapshots(std::string session, std::string owner, std::string after, int limit,
                           Done<std::vector<SnapshotInfo>> done) {
  Call<std::vector<SnapshotInfo>>(
      std::move(done),
      [this, session = std::move(session), owner = std::move(owner), after = std::move(after),
       limit]() -> absl::StatusOr<std::vector<SnapshotInfo>> {
        WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(session, owner));
        return runner->sessions().ListSnapshots(session, owner, after, limit);
      });
}

void Engine::DeleteSnapshot(std::string session, std::string owner, std::string snapshot,
                            Done<SnapshotInfo> done) {
  Call<SnapshotInfo>(std::move(done),
                     [this, session = std::move(session), owner = std::move(owner),
                      snapshot = std::move(snapshot)]() -> absl::StatusOr<SnapshotInfo> {
                       WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(session, owner));
                       return runner->sessions().DeleteSnapshot(session, owner, snapshot);
                     });
}

void Engine::RollbackSession(std::string session, std::string owner, std::string etag, std::string snapshot,
                             Done<SessionInfo> done) {
  if (draining()) return RefuseAtOnce(Draining(), &metrics_, &done);
  CallInPieces<SessionInfo>(
      &metrics_.restore_duration, std::move(done),
      [this, session = std::move(session), owner = std::move(owner), etag = std::move(etag),
       snapshot = std::move(snapshot)]() -> absl::StatusOr<PiecewiseWork<SessionInfo>> {
        WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(session, owner));
        return runner->sessions().Rollback(session, owner, etag, snapshot);
      });
}

void Engine::ImportSession(CreateParams params, std::shared_ptr<const SnapshotImage> image,
                           Done<SessionInfo> done) {
  if (draining()) return RefuseAtOnce(Draining(), &metrics_, &done);
  CallInPieces<SessionInfo>(
      &metrics_.restore_duration, std::move(done),
      [this, params = std::move(params),
       image = std::move(image)]() mutable -> absl::StatusOr<PiecewiseWork<SessionInfo>> {
        const SessionTable& sessions = runners_[params.model]->sessions();
        const int64_t bytes = sessions.StateBytes(image->header.fed);
        WEIR_RETURN_IF_ERROR(CheckNewSession(params.id, params.owner, bytes));
        const std::string id = params.id, owner = params.owner;
        WEIR_ASSIGN_OR_RETURN(PiecewiseWork<SessionInfo> work, runners_[params.model]->sessions().StartImport(
                                                                   std::move(params), std::move(image)));
        // The owner may take the name, or use up the quota, while the copy is under way.
        work.finish = [this, id, owner, bytes, finish = std::move(work.finish)](
                          absl::Time now) mutable -> absl::StatusOr<SessionInfo> {
          WEIR_RETURN_IF_ERROR(CheckNewSession(id, owner, bytes));
          return finish(now);
        };
        return work;
      });
}

void Engine::ExportSession(std::string id, std::string owner, std::string etag,
                           Done<std::unique_ptr<Export>> done) {
  Call<std::unique_ptr<Export>>(std::move(done),
                                [this, id = std::move(id), owner = std::move(owner), etag = std::move(etag)] {
                                  return OpenExport(id, owner, etag);
                                });
}

void Engine::ReadExport(uint64_t handle, Done<std::string> done) {
  auto shared_done = std::make_shared<Done<std::string>>(std::move(done));
  const bool posted = Post([this, handle, shared_done] {
    copies_.push_back(
        {[this, handle, shared_done] {
           const auto it = exports_.find(handle);
           absl::StatusOr<std::string> piece = absl::CancelledError("closed");
           if (it != exports_.end()) {
             piece = it->second->session->reader.Read(kCopyBytes);
             if (!piece.ok()) piece = LoseDevice(piece.status());
           }
           Reply<std::string>(shared_done, std::move(piece));
           return true;
         },
         [this, shared_done](const absl::Status& why) { Reply<std::string>(shared_done, why); }});
  });
  if (!posted) (*shared_done)(Stopped());
}

void Engine::CloseExport(uint64_t handle) {
  Post([this, handle] {
    const auto it = exports_.find(handle);
    it->second->table->EndExport(it->second->session.get(), MonotonicNow());
    exports_.erase(it);
  });
}

Engine::Export::Export(Engine* engine, uint64_t handle, SessionInfo session)
    : engine_(engine), handle_(handle), session_(std::move(session)) {}
Engine::Export::~Export() { engine_->CloseExport(handle_); }
void Engine::Export::Read(Done<std::string> done) { engine_->ReadExport(handle_, std::move(done)); }

// --- engine thread ---

absl::StatusOr<std::unique_ptr<Engine::Export>> Engine::OpenExport(const std::string& id,
                                                                   const std::string& owner,
                                                                   const std::string& etag) {
  WEIR_ASSIGN_OR_RETURN(ModelRunner * runner, RunnerOf(id, owner));
  SessionTable& table = runner->sessions();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<SessionExport> session, table.StartExport(id, owner, etag));
  const uint64_t handle = next_export_++;
  auto out = std::make_unique<Export>(this, handle, session->info);
  exports_.emplace(handle, std::make_unique<PendingExport>(PendingExport{&table, std::move(session)}));
  return out;
}

// Ahead of the replies: whoever hears of an end finds the memory free.
void Engine::PostGarbage() {
  for (const auto& runner : runners_) {
    auto garbage = runner->sessions().TakeGarbage();
    if (garbage.empty()) continue;
    wake_list_->replies.insert(wake_list_->replies.begin(),
                               [garbage = std::move(garbage)]() mutable { garbage.clear(); });
  }
}

void Engine::RunCopies() {
  if (copies_.empty()) return;
  const absl::Time end = MonotonicNow() + kCopyTime;
  while (!copies_.empty() && lost_.ok()) {
    Copy copy = std::move(copies_.front());
    copies_.pop_front();
    if (!copy.step()) copies_.push_back(std::move(copy));
    if (MonotonicNow() >= end) return;
  }
}

}  // namespace weir
