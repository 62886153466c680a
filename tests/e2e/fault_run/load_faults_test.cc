// Calls that end early in their thousands, and memory that has run out.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "fmt/format.h"
#include "grpcpp/completion_queue.h"
#include "runtime/base/error.h"
#include "tests/e2e/fault_run/fault_harness.h"
#include "tests/support/server_fixture.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/models.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir::testing {
namespace {

using std::chrono::microseconds;

// One of those who start calls of all kinds and end each at some point: at once, in its midst, or not at all.
// Has a connection and a session of its own; one thread.
class Stormer {
 public:
  Stormer(const std::shared_ptr<grpc::Channel>& channel, const std::string& twin, int number,
          bool by_deadline)
      : twin_(twin),
        session_(fmt::format("sessions/storm-{}", number)),
        by_deadline_(by_deadline),
        random_(static_cast<uint32_t>(number)),
        generation_(v1::Generation::NewStub(channel)),
        models_(v1::Models::NewStub(channel)),
        sessions_(v1::Sessions::NewStub(channel)) {}

  // `prompt` has text and model; code -> calls that ended with it.
  std::map<int, int> Storm(const v1::GenerateRequest& prompt, int calls) {
    Create();
    exported_ = Export(/*ends_early=*/false);
    for (int i = 0; i < calls; ++i) {
      v1::GenerateRequest request = prompt;
      switch (i % 6) {
        case 0:
          Generate(request);
          break;
        case 1:
          request.clear_model(), request.set_session(session_), Generate(request);
          break;
        case 2:
          Append(request.prompt());
          break;
        case 3:
          Score(request);
          break;
        case 4:
          Export(/*ends_early=*/true);
          break;
        case 5:
          Import();
          break;
      }
    }
    Delete(session_);
    return codes_;
  }

 private:
  int Random(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  // Sets the deadline of a call that is to end by one.
  void Limit(grpc::ClientContext* context) {
    if (by_deadline_)
      context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1 + Random(50)));
  }
  void Count(const grpc::Status& status) { ++codes_[status.error_code()]; }

  void Create() {
    v1::CreateSessionRequest request;
    request.set_session_id(session_.substr(9));
    request.mutable_session()->set_model("models/" + twin_);
    grpc::ClientContext context;
    // The first call of a channel. gRPC reads errno of its connect() late; where malloc has changed it by
    // then, a connection that is on its way counts as failed, and is tried again.
    context.set_wait_for_ready(true);
    v1::Session session;
    const grpc::Status status = sessions_->CreateSession(&context, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  // A cancelled call may have it for a moment still.
  void Delete(const std::string& name) {
    EXPECT_TRUE(WaitFor(
        [&] {
          v1::DeleteSessionRequest request;
          request.set_name(name);
          grpc::ClientContext context;
          google::protobuf::Empty none;
          const grpc::Status status = sessions_->DeleteSession(&context, request, &none);
          return status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND;
        },
        kPatience))
        << name;
  }

  template <class Message, class Take>
  void Read(grpc::ClientContext* context, grpc::ClientReader<Message>* reader, bool ends_early, Take take) {
    const int last = by_deadline_ || !ends_early ? -1 : Random(6);
    Message message;
    for (int i = 0;; ++i) {
      if (i == last) context->TryCancel();
      if (!reader->Read(&message)) break;
      take(message);
    }
    Count(reader->Finish());
  }
  void Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    Limit(&context);
    const auto reader = generation_->Generate(&context, request);
    Read(&context, reader.get(), true, [](const v1::GenerateResponse&) {});
  }
  std::string Export(bool ends_early) {
    v1::ExportSessionRequest request;
    request.set_name(session_);
    grpc::ClientContext context;
    if (ends_early) Limit(&context);
    std::string bytes;
    const auto reader = sessions_->ExportSession(&context, request);
    Read(&context, reader.get(), ends_early,
         [&](const v1::ExportSessionResponse& piece) { bytes += piece.data(); });
    return bytes;
  }
  void Import() {
    const std::string name = fmt::format("{}-{}", session_, ++imports_);
    {
      grpc::ClientContext context;
      Limit(&context);
      v1::Session session;
      const auto writer = sessions_->ImportSession(&context, &session);
      v1::ImportSessionRequest piece;
      piece.set_session_id(name.substr(9));
      piece.set_total_bytes(static_cast<int64_t>(exported_.size()));
      const size_t step = exported_.size() / 5 + 1;
      const int last = by_deadline_ ? -1 : Random(7);
      for (size_t at = 0; at < exported_.size(); at += step) {
        if (static_cast<int>(at / step) == last) context.TryCancel();
        piece.set_data(exported_.substr(at, step));
        if (!writer->Write(piece)) break;
        piece.Clear();
      }
      if (last == 5) context.TryCancel();
      writer->WritesDone();
      Count(writer->Finish());
    }
    Delete(name);
  }
  // A call of one answer, cancelled while it is under way.
  template <class Rpc, class Response>
  void Finish(grpc::ClientContext* context, grpc::CompletionQueue* queue, Rpc rpc, Response* response) {
    grpc::Status status;
    rpc->Finish(response, &status, nullptr);
    if (!by_deadline_) {
      if (const int wait = Random(3000); wait > 500) std::this_thread::sleep_for(microseconds(wait));
      context->TryCancel();
    }
    void* tag;
    bool ok;
    queue->Next(&tag, &ok);
    Count(status);
  }
  void Append(const v1::Prompt& prompt) {
    v1::AppendSessionRequest request;
    request.set_name(session_);
    *request.mutable_prompt() = prompt;
    grpc::ClientContext context;
    Limit(&context);
    grpc::CompletionQueue queue;
    v1::AppendSessionResponse response;
    Finish(&context, &queue, sessions_->AsyncAppendSession(&context, request, &queue), &response);
  }
  void Score(const v1::GenerateRequest& prompt) {
    v1::ScoreRequest request;
    request.set_model(prompt.model());
    *request.mutable_prompt() = prompt.prompt();
    grpc::ClientContext context;
    Limit(&context);
    grpc::CompletionQueue queue;
    v1::ScoreResponse response;
    Finish(&context, &queue, models_->AsyncScore(&context, request, &queue), &response);
  }

  const std::string twin_, session_;
  const bool by_deadline_;
  std::mt19937 random_;
  const std::unique_ptr<v1::Generation::Stub> generation_;
  const std::unique_ptr<v1::Models::Stub> models_;
  const std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::string exported_;
  int imports_ = 0;
  std::map<int, int> codes_;
};

class LoadFaults : public FaultRun {
 protected:
  // Thousands of calls from eight threads. How calls of each code ended.
  std::map<int, int> Storm(int calls, bool by_deadline) {
    constexpr int kThreads = 8;
    std::map<int, int> all;
    std::vector<std::map<int, int>> codes(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        v1::GenerateRequest prompt = Request(kTwins[i % 2], 400);
        prompt.mutable_prompt()->set_text("Once upon a time there was a king who had a daughter.");
        codes[i] = Stormer(NewChannel(), kTwins[i % 2], i, by_deadline).Storm(prompt, calls / kThreads);
      });
    for (std::thread& thread : threads) thread.join();
    DeleteImported();
    for (const auto& some : codes)
      for (const auto& [code, count] : some) all[code] += count;
    for (const auto& [code, count] : all) fmt::print("{} calls ended with code {}\n", count, code);
    return all;
  }
  // An import that its client gave up at the very end may have become a session, which it is once no memory
  // is held for it.
  void DeleteImported() const {
    const WeirClient client = Connect();
    EXPECT_TRUE(WaitFor([&] { return Info().snapshot_memory_used_bytes() == 0; }, kPatience));
    v1::ListSessionsRequest list;
    list.set_page_size(1000);
    const auto sessions = client.ListSessions(list);
    ASSERT_TRUE(sessions.ok()) << sessions.status();
    for (const v1::Session& session : sessions->sessions()) {
      if (session.name().rfind("sessions/storm-", 0) != 0) continue;
      v1::DeleteSessionRequest gone;
      gone.set_name(session.name());
      const absl::Status deleted = client.DeleteSession(gone);
      EXPECT_TRUE(deleted.ok()) << deleted;
    }
  }
  // Those that a server that is well may give to calls that are cut off.
  static void ExpectOrderly(const std::map<int, int>& codes) {
    for (const auto& [code, count] : codes)
      EXPECT_TRUE(code == grpc::OK || code == grpc::CANCELLED || code == grpc::DEADLINE_EXCEEDED ||
                  code == grpc::ABORTED || code == grpc::RESOURCE_EXHAUSTED)
          << code << ": " << count;
  }
};

TEST_F(LoadFaults, AStormOfCancellations) {
  StartServer();
  Endure([&] {
    const std::map<int, int> codes = Storm(Many(1200), /*by_deadline=*/false);
    ExpectOrderly(codes);
    EXPECT_GT(codes.at(grpc::CANCELLED), Many(300));
  });
  StopServer();
}

TEST_F(LoadFaults, AStormOfDeadlines) {
  StartServer();
  Endure([&] {
    const std::map<int, int> codes = Storm(Many(800), /*by_deadline=*/true);
    ExpectOrderly(codes);
    EXPECT_GT(codes.at(grpc::DEADLINE_EXCEEDED), Many(100));
  });
  StopServer();
}

// Each kind of memory until there is no more of it, all at once, and then nothing of it is held.
TEST_F(LoadFaults, MemoryIsAllInUse) {
  StartServer({"--kv-memory", "8MiB", "--snapshot-memory", "8MiB"});  // some 900 tokens
  const auto refusal = [](const absl::Status& status) { return GetErrorDetails(status).reason; };
  Endure(
      [&] {
        const WeirClient client = Connect();
        std::vector<std::string> held;
        for (const char* twin : kTwins) {
          absl::Status status;
          while (status.ok()) {
            v1::CreateSessionRequest request;
            request.mutable_session()->set_model(ModelResource(twin));
            const auto session = client.CreateSession(request);
            if ((status = session.status()).ok()) held.push_back(session->name());
          }
          EXPECT_EQ(refusal(status), "SESSION_CAPACITY_EXHAUSTED");
        }
        EXPECT_GE(held.size(), static_cast<size_t>(2 * kSlots - 2));  // the witnesses may have one each
        // Snapshots of a linear session, then the blocks of the paged ones.
        absl::Status status;
        for (int i = 0; status.ok() && i < 100'000; ++i) {
          v1::CreateSnapshotRequest request;
          request.set_parent(held.front());
          status = client.CreateSnapshot(request).status();
        }
        EXPECT_EQ(refusal(status), "SNAPSHOT_MEMORY_EXHAUSTED");
        status = absl::OkStatus();
        for (auto session = held.rbegin(); status.ok() && session != held.rend() - kSlots; ++session) {
          v1::GenerateRequest request;
          request.set_session(*session);
          request.mutable_prompt()->mutable_token_ids()->mutable_ids()->Resize(200, 5);
          request.mutable_stop()->set_max_tokens(1);
          status = client.Generate(request, [](const v1::Delta&) {}).status();
        }
        EXPECT_EQ(refusal(status), "KV_CAPACITY_EXHAUSTED");
        for (const std::string& name : held) {
          v1::DeleteSessionRequest request;
          request.set_name(name);
          const absl::Status deleted = client.DeleteSession(request);
          EXPECT_TRUE(deleted.ok()) << deleted;
        }
      },
      {.witnesses_may_wait = true});
  StopServer();
}

}  // namespace
}  // namespace weir::testing
