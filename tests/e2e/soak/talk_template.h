// TalkTemplate: a talk that many clients have at once, each to be told what the one was told who was alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "weir/v1/generation.pb.h"

namespace weir::testing {

// What one turn adds to a sequence, and what its client was told.
struct TurnRecord {
  int64_t position = 0;             // before the turn
  std::vector<int32_t> prompt_ids;  // as the server's tokenizer made them
  std::vector<int32_t> output_ids;
  std::string text;
  bool operator==(const TurnRecord&) const = default;
};

// First a question, then two ways on: in the same session, and in a fork of it that was made in between.
enum Turn { kQuestion, kParent, kChild, kTurns };

struct TalkTemplate {
  std::string model;
  bool in_session = false;  // else the question is all there is
  std::array<v1::GenerateRequest, kTurns> requests;
  std::array<TurnRecord, kTurns> alone;  // recorded

  int turns() const { return in_session ? kTurns : 1; }
};

// `count` talks over `models`, a pure function of both: lengths, sampling, penalties, stop strings and
// sessions vary.
std::vector<TalkTemplate> MakeTalkTemplates(const std::vector<std::string>& models, int count);

// Has the talk with nobody else there and keeps what was said.
absl::Status RecordAlone(const WeirClient& client, TalkTemplate* talk);

}  // namespace weir::testing
