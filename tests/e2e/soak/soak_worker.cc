#include "tests/e2e/soak/soak_worker.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

constexpr absl::Duration kCallPatience = absl::Minutes(5);
constexpr int kDeadlinesMs[] = {20, 100, 400};

absl::Status Wrong(const TalkTemplate& talk, std::string_view what) {
  return absl::DataLossError(
      fmt::format("{}, \"{:.40}…\": {}", talk.model, talk.requests[kQuestion].prompt().text(), what));
}

// Of `record`, everything in order: prompt, then output.
std::vector<int32_t> Sequence(const TurnRecord& record) {
  std::vector<int32_t> ids = record.prompt_ids;
  ids.insert(ids.end(), record.output_ids.begin(), record.output_ids.end());
  return ids;
}

bool StartsWith(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

SoakCounts& SoakCounts::operator+=(const SoakCounts& other) {
  talks += other.talks;
  turns += other.turns;
  cancelled += other.cancelled;
  past_deadline += other.past_deadline;
  slow += other.slow;
  resumed += other.resumed;
  tokens += other.tokens;
  return *this;
}

// What a client was told of a turn.
struct SoakWorker::Heard {
  std::vector<int32_t> ids;
  std::string text;
  int64_t first_position = -1;
};

SoakWorker::SoakWorker(std::string address, const std::vector<TalkTemplate>& talks, uint64_t seed)
    : address_(std::move(address)), talks_(talks), draw_(seed) {
  for (int deadline_ms : {0, kDeadlinesMs[0], kDeadlinesMs[1], kDeadlinesMs[2]}) {
    ConnectOptions options;
    options.timeout = kCallPatience;
    if (deadline_ms != 0) options.call_timeout = absl::Milliseconds(deadline_ms);
    absl::StatusOr<WeirClient> client = WeirClient::Connect(address_, options);
    WEIR_CHECK(client.ok());
    clients_.push_back(*std::move(client));
  }
}

SoakWorker::~SoakWorker() { Stop().IgnoreError(); }

void SoakWorker::Start() {
  talking_.store(true);
  thread_ = std::thread([this] {
    while (!stop_.load() && complaint_.ok()) complaint_ = Talk(talks_[Draw(talks_.size())]);
    talking_.store(false);
  });
}

absl::Status SoakWorker::Stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  return complaint_;
}

absl::Status SoakWorker::Talk(const TalkTemplate& talk) {
  ++counts_.talks;
  if (!talk.in_session) return HaveTurn(talk, kQuestion, "");
  std::vector<std::string> sessions;
  absl::Status status = TalkInSession(talk, &sessions);
  for (const std::string& name : sessions) {
    v1::DeleteSessionRequest gone;
    gone.set_name(name);
    status.Update(clients_[0].DeleteSession(gone));
  }
  return status;
}

absl::Status SoakWorker::TalkInSession(const TalkTemplate& talk, std::vector<std::string>* sessions) {
  v1::CreateSessionRequest create;
  create.mutable_session()->set_model(ModelResource(talk.model));
  WEIR_ASSIGN_OR_RETURN(const v1::Session parent, clients_[0].CreateSession(create));
  sessions->push_back(parent.name());
  WEIR_RETURN_IF_ERROR(HaveTurn(talk, kQuestion, parent.name()));
  v1::ForkSessionRequest fork;
  fork.set_name(parent.name());
  WEIR_ASSIGN_OR_RETURN(const v1::Session child, clients_[0].ForkSession(fork));
  sessions->push_back(child.name());
  WEIR_RETURN_IF_ERROR(HaveTurn(talk, kParent, parent.name()));
  return HaveTurn(talk, kChild, child.name());
}

absl::Status SoakWorker::HaveTurn(const TalkTemplate& talk, Turn turn, const std::string& session) {
  ++counts_.turns;
  const TurnRecord& record = talk.alone[turn];
  v1::GenerateRequest request = talk.requests[turn];
  request.set_session(session);
  const size_t fate = Draw(10);
  Heard heard;
  const absl::Status ended = Ask(request,
                                 fate < 5   ? Fate::kPlain
                                 : fate < 7 ? Fate::kCancel
                                 : fate < 9 ? Fate::kDeadline
                                            : Fate::kSlow,
                                 &heard);
  counts_.tokens += static_cast<int64_t>(heard.ids.size());
  if (!ended.ok() && !absl::IsCancelled(ended) && !absl::IsDeadlineExceeded(ended)) return ended;
  if (!StartsWith(record.output_ids, heard.ids))
    return Wrong(talk, fmt::format("turn {} said \"{}\", and alone \"{}\"", static_cast<int>(turn),
                                   heard.text, record.text));
  const auto output_starts = record.position + static_cast<int64_t>(record.prompt_ids.size());
  if (!heard.ids.empty() && heard.first_position != output_starts)
    return Wrong(talk, fmt::format("output starts at {} instead of {}", heard.first_position, output_starts));
  if (ended.ok()) {
    if (heard.ids != record.output_ids || heard.text != record.text)
      return Wrong(talk, fmt::format("turn {} ended at {} of {} tokens with \"{}\", and alone with \"{}\"",
                                     static_cast<int>(turn), heard.ids.size(), record.output_ids.size(),
                                     heard.text, record.text));
    return absl::OkStatus();
  }
  if (session.empty()) return absl::OkStatus();  // its state is gone
  return Resume(request, record, heard);
}

absl::Status SoakWorker::Ask(const v1::GenerateRequest& request, Fate fate, Heard* heard) {
  CancelToken cancel;
  const WeirClient& client = clients_[fate == Fate::kDeadline ? 1 + Draw(std::size(kDeadlinesMs)) : 0];
  const size_t cancel_at = Draw(static_cast<size_t>(request.stop().max_tokens()));
  const bool cancel_at_once = fate == Fate::kCancel && cancel_at < 2;  // the prompt is still being absorbed
  std::thread canceller;
  if (cancel_at_once)
    canceller = std::thread([&cancel, wait = absl::Microseconds(Draw(30'000))] {
      absl::SleepFor(wait);
      cancel.Cancel();
    });
  const absl::Status status =
      client
          .Generate(
              request,
              [&](const v1::Delta& delta) {
                if (heard->ids.empty() && delta.token_ids_size() > 0)
                  heard->first_position = delta.position();
                heard->ids.insert(heard->ids.end(), delta.token_ids().begin(), delta.token_ids().end());
                heard->text += delta.text();
                if (fate == Fate::kCancel && heard->ids.size() > cancel_at) cancel.Cancel();
                if (fate == Fate::kSlow) absl::SleepFor(absl::Milliseconds(Draw(20)));
              },
              &cancel)
          .status();
  if (canceller.joinable()) canceller.join();
  counts_.cancelled += absl::IsCancelled(status);
  counts_.past_deadline += absl::IsDeadlineExceeded(status);
  counts_.slow += fate == Fate::kSlow;
  return status;
}

absl::StatusOr<v1::Session> SoakWorker::WaitUntilFree(const std::string& session) const {
  v1::GetSessionRequest get;
  get.set_name(session);
  absl::StatusOr<v1::Session> found;
  WaitFor(
      [&] {
        found = clients_[0].GetSession(get);
        return !found.ok() || !found->busy();
      },
      kCallPatience);
  return found;
}

absl::Status SoakWorker::Resume(const v1::GenerateRequest& request, const TurnRecord& record,
                                const Heard& heard) {
  ++counts_.resumed;
  WEIR_ASSIGN_OR_RETURN(const v1::Session session, WaitUntilFree(request.session()));
  const std::vector<int32_t> sequence = Sequence(record);
  const int64_t done = session.position() - record.position;
  const auto prompt = static_cast<int64_t>(record.prompt_ids.size());
  const auto told = heard.ids.empty() ? 0 : prompt + static_cast<int64_t>(heard.ids.size());
  if (done < told || done > static_cast<int64_t>(sequence.size()))
    return absl::DataLossError(fmt::format("{} stands at {}, its client was told {} of {} tokens after {}",
                                           session.name(), session.position(), told, sequence.size(),
                                           record.position));
  // The most recent ids, as far as they are this turn's.
  const auto known = std::min<int64_t>(done, session.recent_token_ids_size());
  if (!std::equal(sequence.begin() + (done - known), sequence.begin() + done,
                  session.recent_token_ids().end() - known))
    return absl::DataLossError(fmt::format("{} names other recent ids than were generated", session.name()));

  v1::GenerateRequest rest = request;
  rest.clear_prompt();
  if (done < prompt) {
    rest.mutable_prompt()->mutable_token_ids()->mutable_ids()->Add(record.prompt_ids.begin() + done,
                                                                   record.prompt_ids.end());
    rest.mutable_prompt()->set_add_special_tokens(false);
  }
  const std::vector<int32_t> expected(record.output_ids.begin() + std::max<int64_t>(done - prompt, 0),
                                      record.output_ids.end());
  if (expected.empty()) return absl::OkStatus();
  rest.mutable_stop()->set_max_tokens(static_cast<int64_t>(expected.size()));
  Heard more;
  WEIR_RETURN_IF_ERROR(Ask(rest, Fate::kPlain, &more));
  counts_.tokens += static_cast<int64_t>(more.ids.size());
  if (more.ids != expected)
    return absl::DataLossError(fmt::format("{} went on after {} of {} tokens with {} others", session.name(),
                                           done, sequence.size(), more.ids.size()));
  return absl::OkStatus();
}

}  // namespace weir::testing
