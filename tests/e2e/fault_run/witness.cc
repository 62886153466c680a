#include "tests/e2e/fault_run/witness.h"

#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "runtime/base/status_macros.h"

namespace weir::testing {
namespace {

constexpr int kTokens = 40;  // of each turn

}  // namespace

Witness::Witness(WeirClient client, const std::string& model) : client_(std::move(client)), model_(model) {}

Witness::~Witness() { Stop().IgnoreError(); }

absl::Status Witness::TalkAlone() {
  WEIR_ASSIGN_OR_RETURN(alone_, Talk());
  return absl::OkStatus();
}

void Witness::Start(bool may_wait) {
  stop_.store(false);
  under_way_.store(false);
  talks_.store(0);
  talking_.store(true);
  complaint_ = absl::OkStatus();
  thread_ = std::thread([this, may_wait] { Run(may_wait); });
  under_way_.wait(false);
}

absl::Status Witness::Stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  return complaint_;
}

void Witness::Run(bool may_wait) {
  do {
    const absl::StatusOr<Testimony> talk = Talk();
    if (talk.ok()) {
      if (*talk != alone_)
        complaint_.Update(
            absl::DataLossError(fmt::format("{} said {}, and alone {}", model_, talk->text, alone_.text)));
      talks_.fetch_add(1);
    } else if (may_wait && absl::IsResourceExhausted(talk.status())) {
      absl::SleepFor(absl::Milliseconds(5));  // somebody has all there is; no order depends on this
    } else {
      complaint_.Update(talk.status());
    }
    under_way_.store(true);
    under_way_.notify_all();
  } while (!stop_.load() && complaint_.ok());
  talking_.store(false);
}

absl::StatusOr<Testimony> Witness::Talk() {
  v1::CreateSessionRequest create;
  create.mutable_session()->set_model(ModelResource(model_));
  WEIR_ASSIGN_OR_RETURN(const v1::Session session, client_.CreateSession(create));
  Testimony testimony;
  absl::Status status = Turn(session.name(), "Once upon a time there was a king who", 7, &testimony);
  if (status.ok()) status = Turn(session.name(), " and the miller's daughter", 8, &testimony);
  v1::DeleteSessionRequest gone;
  gone.set_name(session.name());
  status.Update(client_.DeleteSession(gone));
  if (!status.ok()) return status;
  return testimony;
}

absl::Status Witness::Turn(const std::string& session, const std::string& prompt, uint64_t seed,
                           Testimony* testimony) {
  v1::GenerateRequest request;
  request.set_session(session);
  request.mutable_prompt()->set_text(prompt);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_stop()->set_max_tokens(kTokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_logprobs(true);
  return client_
      .Generate(request,
                [&](const v1::Delta& delta) {
                  under_way_.store(true);
                  under_way_.notify_all();
                  testimony->text += delta.text();
                  testimony->token_ids.insert(testimony->token_ids.end(), delta.token_ids().begin(),
                                              delta.token_ids().end());
                  for (const v1::TokenLogprob& token : delta.logprobs())
                    testimony->logprobs.push_back(token.logprob());
                })
      .status();
}

}  // namespace weir::testing
