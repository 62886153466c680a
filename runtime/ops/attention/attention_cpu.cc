// Plans CPU flash attention: which tasks the worker pool runs. Results do not depend on the plan.
//
// Runs of several tokens are cut into query tiles, each of which walks its whole prefix. Runs of one token
// are cut along the sequence into pieces whose partial sums meet in the scratch; when there are more pieces
// than it holds, they go in waves.
#include <algorithm>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/ops/attention/flash_cpu.h"

namespace weir {
namespace {

// Rows of a query tile: their states and queries (about 1 KB a row at head_dim 64) stay in the L2 cache.
constexpr int kTileRows = 192;
// Tasks per thread below which tiles are made smaller, so that threads finish together.
constexpr int kTasksPerThread = 6;
// Partial sums of at least this many pieces fit, so that batches of short sequences take few waves.
constexpr int64_t kMinPieces = 64;
// Row states below which merging pieces is quicker than waking the workers.
constexpr int64_t kInlineMergeRows = 64;

int64_t PartialPieces(int64_t max_positions) {
  const int64_t pieces = (max_positions + kAttentionPieceTokens - 1) / kAttentionPieceTokens;
  return std::max(pieces, kMinPieces);
}

int64_t ThreadFloats(int num_heads, int head_dim) {
  return FlashScratchFloats(std::max(kTileRows, num_heads), head_dim);
}

struct Task {
  int run;
  int kv_head;     // the first
  int num_heads;   // KV heads; tile: 1
  int first;       // tile: first token of the run
  int num_tokens;  // tile: tokens; 0 for a piece
  int64_t piece;
  int64_t partial;  // piece: where its row states go
};

struct Merge {
  int run;
  int64_t num_pieces;
  int64_t partial;  // where the row states [num_pieces][num_heads] of the run begin
};

struct Plan {
  std::vector<Task> tasks;
  std::vector<Merge> merges;
};

class Planner {
 public:
  Planner(const AttentionArgs& args, Stream& stream)
      : args_(args),
        pool_(PoolOf(stream)),
        num_kv_heads_(static_cast<int>(args.kv.keys.dim(1))),
        head_dim_(static_cast<int>(args.kv.keys.dim(2))),
        group_(args.num_heads / num_kv_heads_),
        cu_seqlens_(args.batch.cu_seqlens.data<int32_t>()),
        positions_(args.batch.positions.data<int64_t>()) {
    const int64_t value_dim = args.kv.values.dim(3);
    WEIR_CHECK(args.num_heads == group_ * num_kv_heads_);
    WEIR_CHECK(args.kv.keys.dim(3) == kKvBlockTokens && args.kv.values.dim(2) == kKvBlockTokens);
    WEIR_CHECK(value_dim == head_dim_ && args.kv.values.dim(1) == num_kv_heads_);
    WEIR_CHECK(args.kv.keys.dtype() == args.kv.values.dtype());
    WEIR_CHECK(args.q.row_size() == static_cast<int64_t>(args.num_heads) * head_dim_);
    WEIR_CHECK(args.o.row_size() == args.q.row_size());
    thread_floats_ = ThreadFloats(args.num_heads, head_dim_);
    partials_ = args.scratch.data<float>() + pool_.num_threads() * thread_floats_;
    const int64_t floats = args.scratch.num_elements() - pool_.num_threads() * thread_floats_;
    max_partials_ = floats / RowStateFloats(head_dim_);
  }

  void Run() {
    // The planning thread's own and as large as the largest batch yet, so that steady steps do not allocate.
    static thread_local Plan plan;
    plan.tasks.clear();
    plan.merges.clear();
    AddTiles(plan);
    const int heads_per_task = HeadsPerPieceTask();
    int64_t used = 0;
    for (int run = 0; run < args_.batch.num_seqs; ++run) {
      if (RunTokens(run) != 1) continue;
      const int64_t pieces = positions_[run] / kAttentionPieceTokens + 1;
      WEIR_CHECK(pieces * args_.num_heads <= max_partials_);
      if (used + pieces * args_.num_heads > max_partials_) {
        Execute(plan);
        used = 0;
      }
      plan.merges.push_back({run, pieces, used});
      for (int64_t piece = 0; piece < pieces; ++piece) {
        for (int head = 0; head < num_kv_heads_; head += heads_per_task) {
          const int heads = std::min(heads_per_task, num_kv_heads_ - head);
          plan.tasks.push_back({run, head, heads, 0, 0, piece, used + int64_t{head} * group_});
        }
        used += args_.num_heads;
      }
    }
    Execute(plan);
  }

 private:
  int RunTokens(int run) const { return cu_seqlens_[run + 1] - cu_seqlens_[run]; }

  // All KV heads of a block lie side by side, and long reads are the fast ones; but threads should all have
  // work.
  int HeadsPerPieceTask() const {
    int64_t pieces = 0;
    for (int run = 0; run < args_.batch.num_seqs; ++run)
      if (RunTokens(run) == 1) pieces += positions_[run] / kAttentionPieceTokens + 1;
    const int64_t heads = pieces * num_kv_heads_ / (2 * pool_.num_threads());
    return static_cast<int>(std::clamp<int64_t>(heads, 1, num_kv_heads_));
  }

  // Tiles of all longer runs, the costly late ones first. A tile stays within one KV block.
  void AddTiles(Plan& plan) const {
    int64_t tokens = 0;
    for (int run = 0; run < args_.batch.num_seqs; ++run)
      if (RunTokens(run) > 1) tokens += RunTokens(run);
    if (tokens == 0) return;
    const int64_t wanted = int64_t{kTasksPerThread} * pool_.num_threads();
    int tile = std::clamp(kTileRows / group_, 1, kKvBlockTokens);
    while (tile > 8 && tokens * num_kv_heads_ / tile < wanted) tile /= 2;
    for (int run = 0; run < args_.batch.num_seqs; ++run) {
      const int count = RunTokens(run);
      if (count < 2) continue;
      for (int end = count; end > 0;) {
        const int64_t last_position = positions_[run] + end - 1;
        const int in_block = static_cast<int>(last_position % kKvBlockTokens) + 1;
        const int size = std::min(end, (in_block - 1) % tile + 1);
        for (int head = 0; head < num_kv_heads_; ++head)
          plan.tasks.push_back({run, head, 1, end - size, size, 0, 0});
        end -= size;
      }
    }
  }

  void Execute(Plan& plan) const {
    pool_.ParallelFor(static_cast<int64_t>(plan.tasks.size()), [&](int64_t index, int thread) {
      const Task& task = plan.tasks[static_cast<size_t>(index)];
      float* scratch = args_.scratch.data<float>() + thread * thread_floats_;
      if (task.num_tokens > 0) {
        FlashTile(Rows(task.run, task.kv_head, 1, task.first, task.num_tokens), scratch);
      } else {
        FlashPiece(Rows(task.run, task.kv_head, task.num_heads, 0, 1), task.piece,
                   partials_ + task.partial * RowStateFloats(head_dim_), scratch);
      }
    });
    const auto merge = [&](int64_t index, int thread) {
      const Merge& m = plan.merges[static_cast<size_t>(index / num_kv_heads_)];
      const int head = static_cast<int>(index % num_kv_heads_);
      const int64_t first = m.partial + int64_t{head} * group_;
      FlashCombine(Rows(m.run, head, 1, 0, 1), m.num_pieces, partials_ + first * RowStateFloats(head_dim_),
                   args_.num_heads, args_.scratch.data<float>() + thread * thread_floats_);
    };
    const int64_t num_merges = static_cast<int64_t>(plan.merges.size()) * num_kv_heads_;
    int64_t merged_rows = 0;
    for (const Merge& m : plan.merges) merged_rows += m.num_pieces * args_.num_heads;
    if (merged_rows < kInlineMergeRows) {
      for (int64_t i = 0; i < num_merges; ++i) merge(i, 0);
    } else {
      pool_.ParallelFor(num_merges, merge);
    }
    plan.tasks.clear();
    plan.merges.clear();
  }

  FlashRows Rows(int run, int kv_head, int num_kv_heads, int first, int num_tokens) const {
    const TensorView& keys = args_.kv.keys;
    const TensorView& values = args_.kv.values;
    const auto bytes = static_cast<int64_t>(DTypeBytes(keys.dtype()));
    const int64_t head_bytes = kv_head * int64_t{kKvBlockTokens} * head_dim_ * bytes;
    const int64_t token = cu_seqlens_[run] + first;
    const int64_t column = static_cast<int64_t>(kv_head) * group_ * head_dim_;
    FlashRows rows;
    rows.q = args_.q.row<float>(token) + column;
    rows.o = args_.o.row<float>(token) + column;
    rows.q_stride = args_.q.row_stride();
    rows.o_stride = args_.o.row_stride();
    rows.num_tokens = num_tokens;
    rows.num_kv_heads = num_kv_heads;
    rows.group = group_;
    rows.head_dim = head_dim_;
    rows.position = positions_[run] + first;
    rows.scale = args_.scale;
    rows.dtype = keys.dtype();
    rows.keys = static_cast<const std::byte*>(keys.raw()) + head_bytes;
    rows.values = static_cast<const std::byte*>(values.raw()) + head_bytes;
    rows.key_block_bytes = keys.row_stride() * bytes;
    rows.value_block_bytes = values.row_stride() * bytes;
    rows.block_table = args_.batch.block_tables.row<int32_t>(run);
    return rows;
  }

  const AttentionArgs& args_;
  WorkerPool& pool_;
  const int num_kv_heads_;
  const int head_dim_;
  const int group_;
  const int32_t* const cu_seqlens_;
  const int64_t* const positions_;
  int64_t thread_floats_ = 0;
  float* partials_ = nullptr;  // [max_partials_] row states
  int64_t max_partials_ = 0;
};

}  // namespace

int64_t AttentionScratchElements(int /*max_tokens*/, int64_t max_positions, int num_heads, int head_dim,
                                 int num_threads) {
  return num_threads * ThreadFloats(num_heads, head_dim) +
         PartialPieces(max_positions) * num_heads * RowStateFloats(head_dim);
}

void AttentionCpu(const AttentionArgs& args, Stream& stream) {
  if (args.batch.num_tokens == 0) return;
  Planner(args, stream).Run();
}

}  // namespace weir
