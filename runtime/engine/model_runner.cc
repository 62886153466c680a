#include "runtime/engine/model_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/worker_pool.h"

namespace weir {
namespace {

// Rows of logits for scoring in one step, beside those of the decoders.
constexpr int kScoreRows = kChunkTokens;
// Beside one decoder, so many more rows hardly lengthen a step that is bound by reading the weights.
constexpr int kMinPrefillTokens = 16;
// More logits than this are worth waking other threads for.
constexpr int64_t kShareLogits = 32768;

absl::Status NoCandidate() {
  return MakeError(absl::StatusCode::kInvalidArgument, "NO_CANDIDATE",
                   "logit_bias and stop options leave no token that could be drawn");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(int model_index, const EngineModel& model,
                                                                 Device& device, const EngineOptions& options,
                                                                 MemoryBudget* snapshot_budget) {
  const LanguageModel& lm = *model.model;
  const RunnerLimits& limits = model.limits;
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, device, options));
  WEIR_ASSIGN_OR_RETURN(runner->sessions_,
                        SessionTable::Create(model_index, model, device, options, snapshot_budget));

  SchedulerLimits scheduler_limits;
  scheduler_limits.max_step_tokens = limits.max_step_tokens;
  scheduler_limits.max_step_seqs = limits.max_step_seqs;
  scheduler_limits.prefill_granule = lm.prefill_granule();
  scheduler_limits.min_prefill_tokens = kMinPrefillTokens;
  scheduler_limits.flops_per_token = lm.token_cost().base;
  scheduler_limits.flops_per_token_and_position = lm.token_cost().per_position;
  WEIR_ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(scheduler_limits));
  runner->scheduler_.emplace(std::move(scheduler));

  const int max_logits = limits.max_step_seqs + kScoreRows;
  const StepState state = {runner->sessions_->arena().tensors(), runner->sessions_->kv().layers()};
  WEIR_ASSIGN_OR_RETURN(runner->step_, ModelStep::Create(model, state, max_logits, device));
  for (int i = 0; i < device.workers().num_threads(); ++i)
    runner->samplers_.emplace_back(lm.vocab_size(), model.text->size());
  runner->runs_.reserve(limits.max_step_seqs);
  runner->rows_.reserve(max_logits);
  runner->scores_.resize(max_logits);
  runner->samples_.resize(limits.max_step_seqs);
  runner->top_.resize(kMaxTopLogprobs);
  runner->text_.reserve(4096);
  runner->admissible_.store(limits.slots);
  return runner;
}

int64_t ModelRunner::StepBytes(const LanguageModel& model, const RunnerLimits& limits, int num_threads) {
  const int max_logits = limits.max_step_seqs + kScoreRows;
  const int64_t positions = model.Paged().num_layers > 0 ? model.context_limit() : 0;
  const int64_t logits = int64_t{max_logits} * model.vocab_size() * static_cast<int64_t>(sizeof(float));
  const int64_t block_tables =
      limits.max_step_seqs * (KvPool::BlocksFor(positions) + 1) * static_cast<int64_t>(sizeof(int32_t));
  return model.WorkspaceBytes(limits.max_step_tokens, max_logits, positions, num_threads) + logits +
         block_tables;
}

// --- arrival and admission ---

absl::Status ModelRunner::Check(const TurnParams& params, const Sequence& sequence) const {
  if (sequence.corrupt)
    return MakeError(
        absl::StatusCode::kDataLoss, "STATE_CORRUPT",
        fmt::format(
            "the state of session '{}' is not finite any more; roll it back to a snapshot, or delete it",
            params.session));
  if (params.expected_position && *params.expected_position != sequence.position())
    return MakeError(absl::StatusCode::kAborted, "POSITION_MISMATCH",
                     fmt::format("session '{}' stands at position {}, not {}; read it again", params.session,
                                 sequence.position(), *params.expected_position),
                     {{"position", std::to_string(sequence.position())}});
  const auto prompt = static_cast<int64_t>(params.prompt.size());
  if (sequence.num_pending() + prompt == 0)
    return MakeError(absl::StatusCode::kInvalidArgument, "EMPTY_SEQUENCE",
                     "there is nothing to go on from: give a prompt of at least one token");
  const int64_t limit = model_.model->context_limit();
  if (limit > 0 && sequence.position() + prompt > limit)
    return MakeError(
        absl::StatusCode::kInvalidArgument, "CONTEXT_LIMIT_EXCEEDED",
        fmt::format("{} tokens in the sequence and {} in the prompt exceed the context limit of {} tokens of "
                    "model '{}'; shorten the prompt",
                    sequence.position(), prompt, limit, model_.name),
        {{"position", std::to_string(sequence.position())},
         {"prompt_tokens", std::to_string(prompt)},
         {"context_limit", std::to_string(limit)}});
  if (params.max_tokens > 0 && BansAll(params)) return NoCandidate();
  const int64_t blocks = KvPool::BlocksFor(TokensToReserve(params, sequence));
  if (sessions_->kv().block_bytes() > 0 && blocks > sessions_->kv().num_blocks())
    return MakeError(
        absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
        fmt::format(
            "this turn may need {} KV blocks of {} bytes, the server has {}; ask for fewer max_tokens "
            "or start the server with more --kv-memory",
            blocks, sessions_->kv().block_bytes(), sessions_->kv().num_blocks()),
        {{"blocks", std::to_string(blocks)}, {"capacity", std::to_string(sessions_->kv().num_blocks())}});
  return absl::OkStatus();
}

// Known before anything is fed, which a recurrent state could not take back.
bool ModelRunner::BansAll(const TurnParams& params) const {
  const auto& bias = params.sampling.logit_bias;
  const bool no_eos = params.ignore_eos || params.sampling.min_tokens > 0;
  const int32_t num_ids = std::min(model_.text->size(), model_.model->vocab_size());
  if (bias.size() + (no_eos ? model_.eos_ids.size() : 0) < static_cast<size_t>(num_ids)) return false;
  std::vector<bool> banned(static_cast<size_t>(num_ids));
  for (const auto& [id, value] : bias)
    if (id >= 0 && id < num_ids && value <= kBanBias) banned[id] = true;
  for (const int32_t id : model_.eos_ids)
    if (no_eos && id >= 0 && id < num_ids) banned[id] = true;
  return std::find(banned.begin(), banned.end(), false) == banned.end();
}

int64_t ModelRunner::TokensToReserve(const TurnParams& params, const Sequence& sequence) const {
  if (model_.model->Paged().num_layers == 0) return 0;
  const int64_t known = sequence.position() + static_cast<int64_t>(params.prompt.size());
  const int64_t limit = model_.model->context_limit();
  return std::min(limit, params.max_tokens > limit - known ? limit : known + params.max_tokens);
}

int64_t ModelRunner::NewBytes(const TurnParams& params) const {
  const auto blocks_of = [&](const Sequence& sequence) {
    return KvPool::BlocksFor(TokensToReserve(params, sequence)) * sessions_->kv().block_bytes();
  };
  if (params.session.empty()) return sessions_->arena().slot_bytes() + blocks_of(Sequence());
  const absl::StatusOr<Session*> session = sessions_->Find(params.session, params.owner);
  if (!session.ok() || (*session)->busy) return 0;  // refused for that
  const int64_t held = sessions_->StateBytes((*session)->sequence) - sessions_->arena().slot_bytes();
  return std::max<int64_t>(0, blocks_of((*session)->sequence) - held);
}

SessionUse ModelRunner::UseOf(std::string_view owner) const {
  SessionUse use = sessions_->UseOf(owner);
  for (const auto& turn : running_)
    if (!turn->done && turn->session == nullptr && turn->params.owner == owner)
      use.state_bytes += sessions_->StateBytes(turn->own);
  for (const auto& turn : waiting_) {
    if (turn->params.owner != owner) continue;
    if (turn->session == nullptr) use.state_bytes += sessions_->arena().slot_bytes();
    use.state_bytes += std::max<int64_t>(0, MissingBlocks(turn.get())) * sessions_->kv().block_bytes();
  }
  return use;
}

absl::Status ModelRunner::AttachSession(ActiveTurn* turn) {
  const TurnParams& params = turn->params;
  if (params.session.empty()) return Check(params, turn->own);
  WEIR_ASSIGN_OR_RETURN(Session * session, sessions_->Find(params.session, params.owner));
  WEIR_RETURN_IF_ERROR(CheckIdleAndEtag(*session, params.etag));
  WEIR_RETURN_IF_ERROR(Check(params, session->sequence));
  turn->session = session;
  session->busy = true;
  return absl::OkStatus();
}

void ModelRunner::Submit(TurnParams params, std::shared_ptr<TokenStream> stream, absl::Time now,
                         WakeList* wake) {
  auto turn = std::make_unique<ActiveTurn>();
  turn->params = std::move(params);
  turn->prompt_tokens = static_cast<int64_t>(turn->params.prompt.size());
  turn->stream = std::move(stream);
  turn->arrival = next_arrival_++;
  if (absl::Status status = AttachSession(turn.get()); !status.ok()) {
    metrics_.rejections.Add(status);
    FailTurn(turn.get(), std::move(status), now, wake);
    return;
  }
  const absl::Time arrival = turn->params.arrival;
  metrics_.OnStart(arrival == absl::InfinitePast() ? now : arrival, &turn->times);
  waiting_.push_back(std::move(turn));
}

int64_t ModelRunner::MissingBlocks(ActiveTurn* turn) const {
  Sequence& sequence = turn->sequence();
  return KvPool::BlocksFor(TokensToReserve(turn->params, sequence)) -
         static_cast<int64_t>(sequence.blocks.blocks().size());
}

int64_t ModelRunner::BlocksInSight() const {
  int64_t blocks = sessions_->kv().num_free();
  for (const auto& turn : running_) blocks += static_cast<int64_t>(turn->own.blocks.blocks().size());
  return blocks;
}

absl::Status ModelRunner::OutOfBlocks(const ActiveTurn& turn, int64_t missing) const {
  const KvPool& kv = sessions_->kv();
  return MakeError(
      absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
      fmt::format(
          "session '{}' needs {} more KV blocks of {} bytes, {} are free and sessions keep the others; "
          "delete a session, ask for fewer max_tokens or try again later",
          turn.params.session, missing, kv.block_bytes(), kv.num_free()),
      {{"blocks", std::to_string(missing)}, {"free", std::to_string(kv.num_free())}}, absl::Seconds(1));
}

// First come, first served. Blocks that running turns will give back are kept for the oldest turn that waits
// for them. A turn that waits for blocks of sessions, which may keep them for long, holds up nobody; one that
// has a session itself does not wait for those: two such turns might wait for each other.
void ModelRunner::Admit(absl::Time now, WakeList* wake) {
  bool blocks_are_promised = false;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    ActiveTurn* turn = it->get();
    const int64_t missing = MissingBlocks(turn);
    const bool fits = missing <= sessions_->kv().num_free();
    if (missing > 0 && (!fits || blocks_are_promised)) {
      if (!fits && !blocks_are_promised) blocks_are_promised = missing <= BlocksInSight();
      if (running_.empty() && turn->session != nullptr) {
        FailTurn(turn, OutOfBlocks(*turn, missing), now, wake);
        it = waiting_.erase(it);
      } else {
        ++it;
      }
    } else if (TryAdmit(turn, now, wake)) {
      running_.push_back(std::move(*it));
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
}

// Its blocks are free. False when no slot is.
bool ModelRunner::TryAdmit(ActiveTurn* turn, absl::Time now, WakeList* wake) {
  TurnParams& params = turn->params;
  Sequence& sequence = turn->sequence();
  const int64_t reserve = TokensToReserve(params, sequence);
  if (turn->session == nullptr) {
    std::optional<StateSlot> slot = sessions_->arena().Claim();
    if (!slot) return false;
    sequence.slot = *std::move(slot);
  }
  if (reserve > 0) WEIR_CHECK(sequence.blocks.Reserve(&sessions_->kv(), reserve));

  TurnInfo info;
  info.prompt_tokens = turn->prompt_tokens;
  info.reused_tokens = sequence.position();
  turn->before = sequence.Mark();
  // Text that was cut in mid-character goes on only where nothing comes in between.
  if (!params.prompt.empty()) sequence.text = TextState();
  turn->text =
      TextStream(params.stop_strings != nullptr ? *params.stop_strings : StopMatcher(), sequence.text);
  for (const int32_t id : params.prompt) sequence.has_text = sequence.has_text || !model_.text->IsSpecial(id);
  sequence.AppendPrompt(params.prompt);
  params.prompt = {};  // the sequence has it now
  if (params.max_time != absl::InfiniteDuration()) turn->time_limit = now + params.max_time;
  CountAdmission(*turn, info);
  turn->admitted = true;
  if (turn->stream->Start(info)) wake->streams.push_back(turn->stream);
  return true;
}

// --- one step ---

absl::StatusOr<bool> ModelRunner::Step(absl::Time now, WakeList* wake) {
  sessions_->Expire(now);
  Sweep(now, wake);
  Admit(now, wake);
  for (auto& turn : running_) EndWithoutModel(turn.get(), now, wake);
  std::erase_if(running_, [](const auto& turn) { return turn->done; });
  const absl::Time begin = running_.empty() ? now : options_.now();
  const bool computed = PlanStep();
  if (computed) {
    if (step_->sampling() != nullptr) PlanSampling(step_->sampling());
    WEIR_RETURN_IF_ERROR(step_->Compute());
    ReadRows();
    step_end_ = options_.now();
    metrics_.step_duration.Observe(absl::ToDoubleSeconds(step_end_ - begin));
    metrics_.step_tokens.Observe(step_->batch().num_tokens());
    metrics_.steps.Add();
    Collect(now, wake);
    std::erase_if(running_, [](const auto& turn) { return turn->done; });
  }
  admissible_.store(static_cast<int64_t>(running_.size()) + sessions_->arena().num_free(),
                    std::memory_order_relaxed);
  return computed;
}

void ModelRunner::Sweep(absl::Time now, WakeList* wake) {
  const auto status_of = [&](const ActiveTurn& turn) {
    // gRPC cancels a call whose deadline has passed.
    if (now >= turn.params.deadline)
      return MakeError(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                       "the RPC's deadline has passed");
    if (turn.stream->cancelled()) return absl::CancelledError("the client cancelled the turn");
    if (turn.stream->ReaderTooSlow(now, options_.reader_stall))
      return MakeError(absl::StatusCode::kResourceExhausted, "CLIENT_TOO_SLOW",
                       "the client does not read its stream fast enough; the turn has ended",
                       {{"position", std::to_string(const_cast<ActiveTurn&>(turn).sequence().position())}});
    return absl::OkStatus();
  };
  for (auto& turn : waiting_)
    if (absl::Status status = status_of(*turn); !status.ok())
      FailTurn(turn.get(), std::move(status), now, wake);
  std::erase_if(waiting_, [](const auto& turn) { return turn->done; });
  for (auto& turn : running_)
    if (absl::Status status = status_of(*turn); !status.ok())
      FailTurn(turn.get(), std::move(status), now, wake);
  std::erase_if(running_, [](const auto& turn) { return turn->done; });
}

bool ModelRunner::EndWithoutModel(ActiveTurn* turn, absl::Time now, WakeList* wake) {
  const TurnParams& params = turn->params;
  const Sequence& sequence = turn->sequence();
  if (params.score) {
    if (sequence.num_pending() <= 1) EndTurn(turn, FinishReason::kMaxTokens, -1, -1, now, wake);
  } else if (now >= turn->time_limit) {
    EndTurn(turn, FinishReason::kTimeLimit, -1, -1, now, wake);
  } else if (params.max_tokens == 0) {
    const int granule = model_.model->prefill_granule();
    if (FeedableUntil(sequence.fed, sequence.num_pending(), false, granule) <= sequence.fed)
      EndTurn(turn, FinishReason::kMaxTokens, -1, -1, now, wake);
  } else if (model_.model->context_limit() > 0 && sequence.position() >= model_.model->context_limit() &&
             sequence.num_pending() <= 1) {
    EndTurn(turn, FinishReason::kContextLimit, -1, -1, now, wake);
  }
  return turn->done;
}

bool ModelRunner::PlanStep() {
  views_.clear();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->stream->full()) continue;
    const Sequence& sequence = running_[i]->sequence();
    const bool generating = running_[i]->params.max_tokens > 0 || running_[i]->params.score;
    views_.push_back(
        {static_cast<int>(i), sequence.fed, sequence.num_pending(), generating, running_[i]->arrival});
  }
  scheduler_->Plan(views_, &plan_);

  StepBatch& batch = step_->batch();
  batch.Clear();
  runs_.clear();
  rows_.clear();
  int score_rows = kScoreRows;
  for (const ScheduledRun& run : plan_.runs) {
    ActiveTurn* turn = running_[run.index].get();
    Sequence& sequence = turn->sequence();
    int num_tokens = run.num_tokens;
    int num_logits = run.decode ? 1 : 0;
    if (turn->params.score) {
      // Every token's logits are wanted, so slices are short; a slice still ends on a chunk border.
      const int granule = model_.model->prefill_granule();
      num_tokens = static_cast<int>(
          SliceEnd(sequence.fed, sequence.fed + num_tokens, std::min(score_rows, num_tokens), granule) -
          sequence.fed);
      if (num_tokens <= 0) continue;
      num_logits = num_tokens;
      score_rows -= num_tokens;
    }
    for (int i = 0; i < num_logits; ++i)
      rows_.push_back({static_cast<int>(runs_.size()), batch.num_logits() + i});
    runs_.push_back({turn, num_tokens, batch.num_logits(), num_logits, run.decode});
    batch.AddRun(sequence.slot.index(), sequence.fed, sequence.waiting().first(num_tokens),
                 sequence.blocks.blocks(), num_logits);
  }
  return !runs_.empty();
}

void ModelRunner::PlanSampling(RowSampling* sampling) {
  sampling->Clear();
  for (const WantedRow& wanted : rows_) {
    const ActiveTurn& turn = *runs_[wanted.run].turn;
    if (turn.params.score)
      sampling->AddTarget(wanted.row, ScoreTarget(wanted));
    else
      sampling->Add(wanted.row, turn.params.sampling, DrawIndex(wanted), SuppressedIds(turn));
  }
}

int32_t ModelRunner::ScoreTarget(const WantedRow& wanted) const {
  const PlannedRun& run = runs_[wanted.run];
  return run.turn->sequence().waiting()[wanted.row - run.first_logit + 1];
}

// The draw belongs to the position that the new token will take.
uint64_t ModelRunner::DrawIndex(const WantedRow& wanted) const {
  return static_cast<uint64_t>(runs_[wanted.run].turn->sequence().position());
}

void ModelRunner::ReadRows() {
  const auto num_rows = static_cast<int64_t>(rows_.size());
  const int64_t to_read = step_->sampling() != nullptr ? step_->sampling()->num_host_rows() : num_rows;
  if (to_read * model_.model->vocab_size() > kShareLogits) {
    device_.workers().ParallelFor(num_rows,
                                  [&](int64_t i, int thread) { ReadRow(rows_[i], &samplers_[thread]); });
  } else {
    for (int64_t i = 0; i < num_rows; ++i) ReadRow(rows_[i], &samplers_[0]);
  }
}

void ModelRunner::ReadRow(const WantedRow& wanted, Sampler* sampler) {
  const PlannedRun& run = runs_[wanted.run];
  const RowSampling* const sampled = step_->sampling();
  const bool on_device = sampled != nullptr && !sampled->IsOnHost(wanted.row);
  if (run.turn->params.score) {
    scores_[wanted.row] = on_device ? sampled->Score(wanted.row)
                                    : sampler->ScoreOf(step_->Logits(wanted.row), ScoreTarget(wanted));
  } else {
    samples_[wanted.run] = on_device ? sampled->Result(wanted.row)
                                     : sampler->Sample(step_->Logits(wanted.row), run.turn->params.sampling,
                                                       run.turn->sequence().history, DrawIndex(wanted),
                                                       SuppressedIds(*run.turn));
  }
}

std::span<const int32_t> ModelRunner::SuppressedIds(const ActiveTurn& turn) const {
  if (turn.params.ignore_eos || turn.generated < turn.params.sampling.min_tokens) return model_.eos_ids;
  return {};
}

void ModelRunner::Collect(absl::Time now, WakeList* wake) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    const PlannedRun& run = runs_[i];
    if (run.turn->params.score) CollectScores(run.turn, run.first_logit, run.num_logits, now, wake);
    if (run.turn->done) continue;  // its sequence is gone
    run.turn->sequence().MarkFed(run.num_tokens);
    if (run.decode)
      CollectDecode(run.turn, samples_[i], now, wake);
    else
      metrics_.prefilled_tokens.Add(run.num_tokens);
  }
}

void ModelRunner::CollectScores(ActiveTurn* turn, int first_row, int num_rows, absl::Time now,
                                WakeList* wake) {
  const Sequence& sequence = turn->sequence();
  for (int i = 0; i < num_rows && !turn->done; ++i) {
    const int32_t target = sequence.waiting()[i + 1];
    const TargetScore& score = scores_[first_row + i];
    if (!std::isfinite(score.logprob)) {
      metrics_.nonfinite_rows.Add();
      FailTurn(turn,
               MakeError(absl::StatusCode::kInternal, "NONFINITE_LOGITS",
                         fmt::format("logits are not finite at position {}", sequence.fed + i)),
               now, wake);
      return;
    }
    TokenStream::Token token;
    token.id = target;
    token.position = sequence.fed + i + 1;
    token.logprob = &score.logprob;
    token.rank = score.rank;
    top_.assign(kMaxTopLogprobs, {-1, 0.0f});
    token.top = top_.data();
    if (turn->stream->Push(token, now)) wake->streams.push_back(turn->stream);
  }
}

void ModelRunner::CollectDecode(ActiveTurn* turn, const SampleResult& sample, absl::Time now,
                                WakeList* wake) {
  Sequence& sequence = turn->sequence();
  if (sample.no_candidate) {
    FailTurn(turn, NoCandidate(), now, wake);
    return;
  }
  if (!sample.finite) {
    metrics_.nonfinite_rows.Add();
    sequence.corrupt = true;
    FailTurn(turn,
             MakeError(absl::StatusCode::kInternal, "NONFINITE_LOGITS",
                       fmt::format("the model's logits are not finite at position {}", sequence.position()),
                       {{"position", std::to_string(sequence.position())}}),
             now, wake);
    return;
  }
  const TurnParams& params = turn->params;
  const bool at_start = !sequence.has_text;
  TokenStream::Token token;
  token.id = sample.token;
  token.position = sequence.position();
  if (params.sampling.logprobs || params.sampling.top_logprobs > 0) token.logprob = &sample.logprob;
  for (int i = 0; i < params.sampling.top_logprobs; ++i)
    top_[i] =
        i < sample.num_top ? std::pair(sample.top[i].token, sample.top[i].logprob) : std::pair(-1, 0.0f);
  token.top = top_.data();

  sequence.AppendGenerated(sample.token);
  if (!model_.text->IsSpecial(sample.token)) sequence.has_text = true;
  ++turn->generated;
  metrics_.OnToken(step_end_, &turn->times);

  const bool is_stop = std::binary_search(params.stop_ids.begin(), params.stop_ids.end(), sample.token);
  const bool is_eos =
      !params.ignore_eos && std::binary_search(model_.eos_ids.begin(), model_.eos_ids.end(), sample.token);
  text_.clear();
  int stop_string = -1;
  if (!is_eos && !is_stop)
    stop_string = turn->text.Append(model_.text->Piece(sample.token, at_start), &text_);
  token.text = text_;
  if (turn->stream->Push(token, now)) wake->streams.push_back(turn->stream);

  if (is_eos) {
    EndTurn(turn, FinishReason::kEos, sample.token, -1, now, wake);
  } else if (is_stop) {
    EndTurn(turn, FinishReason::kStopToken, sample.token, -1, now, wake);
  } else if (stop_string >= 0) {
    EndTurn(turn, FinishReason::kStopString, -1, stop_string, now, wake);
  } else if (turn->generated >= params.max_tokens) {
    EndTurn(turn, FinishReason::kMaxTokens, -1, -1, now, wake);
  } else {
    EndWithoutModel(turn, now, wake);
  }
}

}  // namespace weir
