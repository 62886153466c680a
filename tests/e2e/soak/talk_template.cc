#include "tests/e2e/soak/talk_template.h"

#include <random>

#include "runtime/base/status_macros.h"

namespace weir::testing {
namespace {

constexpr const char* kOpenings[] = {
    "Once upon a time there was a king who",   "The miller's daughter said",
    "Deep in the forest stood a house of",     "\"Who is there?\" asked the wolf.",
    "A poor woodcutter had two children, and", "When the winter came, snow lay on",
    "The frog sat at the edge of the well —",  "Long ago, in a town by the sea,",
};

// `words` times a piece of an opening: a prompt that takes several steps when it is long.
std::string Prompt(int opening, int repeats) {
  std::string prompt = kOpenings[opening];
  for (int i = 1; i < repeats; ++i)
    prompt.append(" ").append(kOpenings[(opening + i) % std::size(kOpenings)]);
  return prompt;
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : draw_(seed) {}

  TalkTemplate Make(const std::string& model, int index) {
    TalkTemplate talk;
    talk.model = model;
    talk.in_session = Draw(4) != 0;
    for (int turn = 0; turn < talk.turns(); ++turn) {
      v1::GenerateRequest& request = talk.requests[turn];
      if (!talk.in_session) request.set_model(ModelResource(model));
      const bool is_long = Draw(8) == 0;
      request.mutable_prompt()->set_text(
          Prompt(Draw(std::size(kOpenings)), is_long ? 40 + Draw(40) : 1 + Draw(4)));
      request.mutable_stop()->set_max_tokens(8 + Draw(is_long ? 40 : 160));
      SetSampling(&request, static_cast<uint64_t>(index * kTurns + turn));
    }
    return talk;
  }

 private:
  int Draw(size_t below) { return static_cast<int>(draw_() % below); }

  void SetSampling(v1::GenerateRequest* request, uint64_t seed) {
    v1::SamplingParams& sampling = *request->mutable_sampling();
    v1::StopConditions& stop = *request->mutable_stop();
    sampling.set_seed(seed);
    stop.set_ignore_eos(Draw(3) != 0);
    if (Draw(4) == 0) {
      sampling.set_temperature(0);
      return;
    }
    sampling.set_temperature(0.7F + 0.1F * static_cast<float>(Draw(6)));
    if (Draw(3) == 0) sampling.set_top_k(20);
    if (Draw(3) == 0) sampling.set_top_p(0.9F);
    if (Draw(4) == 0) sampling.set_repetition_penalty(1.2F);
    if (Draw(4) == 0) sampling.set_frequency_penalty(0.4F);
    if (Draw(4) == 0) (*sampling.mutable_logit_bias())[100 + Draw(100)] = 3.0F;
    if (Draw(5) == 0) stop.add_strings("\n\n");
    if (Draw(6) == 0) stop.add_strings("king");
  }

  std::mt19937_64 draw_;
};

absl::Status RecordTurn(const WeirClient& client, const TalkTemplate& talk, const std::string& session,
                        int turn, int64_t position, TurnRecord* record) {
  v1::GenerateRequest request = talk.requests[turn];
  request.set_session(session);
  record->position = position;
  v1::TokenizeRequest tokenize;
  tokenize.set_model(ModelResource(talk.model));
  tokenize.set_text(request.prompt().text());
  tokenize.set_add_special_tokens(position == 0);
  WEIR_ASSIGN_OR_RETURN(const v1::TokenizeResponse tokens, client.Tokenize(tokenize));
  record->prompt_ids.assign(tokens.token_ids().begin(), tokens.token_ids().end());
  return client
      .Generate(request,
                [&](const v1::Delta& delta) {
                  record->output_ids.insert(record->output_ids.end(), delta.token_ids().begin(),
                                            delta.token_ids().end());
                  record->text += delta.text();
                })
      .status();
}

int64_t PositionAfter(const TurnRecord& record) {
  return record.position + static_cast<int64_t>(record.prompt_ids.size() + record.output_ids.size());
}

}  // namespace

std::vector<TalkTemplate> MakeTalkTemplates(const std::vector<std::string>& models, int count) {
  Maker maker(20250);
  std::vector<TalkTemplate> talks;
  for (int i = 0; i < count; ++i)
    talks.push_back(maker.Make(models[static_cast<size_t>(i) % models.size()], i));
  return talks;
}

absl::Status RecordAlone(const WeirClient& client, TalkTemplate* talk) {
  if (!talk->in_session) return RecordTurn(client, *talk, "", kQuestion, 0, &talk->alone[kQuestion]);
  v1::CreateSessionRequest create;
  create.mutable_session()->set_model(ModelResource(talk->model));
  WEIR_ASSIGN_OR_RETURN(const v1::Session parent, client.CreateSession(create));
  WEIR_RETURN_IF_ERROR(RecordTurn(client, *talk, parent.name(), kQuestion, 0, &talk->alone[kQuestion]));
  const int64_t position = PositionAfter(talk->alone[kQuestion]);
  v1::ForkSessionRequest fork;
  fork.set_name(parent.name());
  WEIR_ASSIGN_OR_RETURN(const v1::Session child, client.ForkSession(fork));
  WEIR_RETURN_IF_ERROR(RecordTurn(client, *talk, parent.name(), kParent, position, &talk->alone[kParent]));
  WEIR_RETURN_IF_ERROR(RecordTurn(client, *talk, child.name(), kChild, position, &talk->alone[kChild]));
  for (const std::string& name : {parent.name(), child.name()}) {
    v1::DeleteSessionRequest gone;
    gone.set_name(name);
    WEIR_RETURN_IF_ERROR(client.DeleteSession(gone));
  }
  return absl::OkStatus();
}

}  // namespace weir::testing
