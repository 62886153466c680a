// SnapshotCalls: the methods of weir.v1.Sessions about snapshots.
#pragma once

#include "server/frontend/frontend.h"
#include "weir/v1/sessions.pb.h"

namespace weir {

// As SessionCalls: stateless, `reply` comes once, on the notifier's thread or before the method returns.
class SnapshotCalls {
 public:
  explicit SnapshotCalls(Frontend* frontend) : frontend_(*frontend) {}

  void Create(const v1::CreateSnapshotRequest& request, const CallInfo& call, Reply<v1::Snapshot> reply);
  void Get(const v1::GetSnapshotRequest& request, const CallInfo& call, Reply<v1::Snapshot> reply);
  void List(const v1::ListSnapshotsRequest& request, const CallInfo& call,
            Reply<v1::ListSnapshotsResponse> reply);
  void Delete(const v1::DeleteSnapshotRequest& request, const CallInfo& call, Reply<v1::Snapshot> reply);
  void Rollback(const v1::RollbackSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply);

 private:
  Frontend& frontend_;
};

}  // namespace weir
