// Splits a product into tasks for the workers and hands each to the row kernels of this CPU.
//
// Rows are taken in passes of at most kPassRows: activations are packed once per pass and shared by all
// tasks. A task is some row blocks times some panels; the first of several row blocks keeps int8 panels as
// bf16 for the others. No split depends on anything that changes an output's bits: each output is one chain
// of additions over k inside one row kernel.
#include <algorithm>
#include <memory>
#include <new>
#include <span>

#include "runtime/device/cpu_device.h"
#include "runtime/ops/matmul/isa.h"
#include "runtime/ops/matmul/matmul.h"

namespace weir {
namespace {

using matmul::IsaKernels;
using matmul::kChunkSteps;
using matmul::kInt8StepBytes;
using matmul::kPanelOutputs;
using matmul::kStepBytes;
using matmul::RowBlock;
using matmul::RowKernels;
using matmul::RowsFunction;

constexpr int64_t kPassRows = 512;
constexpr int64_t kSerialMacs = 30'000;      // about what waking a worker costs
constexpr int64_t kSerialPack = 250'000;     // activations; packing them costs a few such wake-ups
constexpr int64_t kCacheBytes = 512 * 1024;  // of a core's L2, for the activations of a task
constexpr int64_t kTasksPerThread = 6;       // so that a thread that the system interrupts delays little
constexpr int64_t kPanelsTogether = 4;       // what a row kernel takes at once for few rows
constexpr int64_t kPanelsPerSweep = 2;       // in the L2 cache while the row blocks of a task use them

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Cuts [0, total) into `parts` of nearly equal size; where part i begins.
int64_t PartBegin(int64_t total, int64_t parts, int64_t i) { return total * i / parts; }

// Packed activations, and a sweep of widened panels for each worker. Owned by the thread that calls
// MatmulCpu, used by the workers during the call; grows to the largest pass and stays.
class Scratch {
 public:
  std::byte* Reserve(int64_t bytes) {
    if (bytes > capacity_) {
      data_.reset();
      data_.reset(static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes), std::align_val_t{64})));
      capacity_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t capacity_ = 0;
};

struct Pass {
  const MatmulArgs& args;
  const IsaKernels& isa;
  const RowKernels& kernels;
  WorkerPool& pool;
  int64_t steps;      // of the sum over k
  int64_t first_row;  // in x and y
  int64_t rows;
  int64_t row_blocks;
  int64_t row_bytes;  // of one packed row of x
  std::byte* x;
  std::byte* widened;  // of int8 weights, for each worker kPanelsPerSweep panels

  bool int8() const { return args.weight->dtype() == DType::kI8; }
  int64_t BlockBegin(int64_t block) const { return PartBegin(rows, row_blocks, block); }

  void PackBlock(int64_t block) const {
    const int64_t begin = BlockBegin(block);
    kernels.pack_x(args.x.row<float>(first_row + begin), args.x.row_stride(), BlockBegin(block + 1) - begin,
                   args.x.dim(1), x + begin * row_bytes);
  }

  const RowsFunction* rows_of_weights() const {
    if (!int8()) return kernels.rows;
    return args.weight->has_minus_128() ? isa.full_int8_rows : isa.int8_rows;
  }
  int64_t PanelBytes() const { return steps * (int8() ? kInt8StepBytes : kStepBytes); }
  const std::byte* Weights(int64_t panel) const { return args.weight->data() + panel * PanelBytes(); }

  // `w`: the first of the panels, as `functions` read it; int8 panels are stored as bf16 in `store`, unless
  // null. `next`: weights to fetch meanwhile.
  void Multiply(int64_t block, int64_t panel_begin, int64_t panel_end, const std::byte* w,
                const RowsFunction* functions, std::byte* store, std::span<const std::byte> next) const {
    const int64_t begin = BlockBegin(block);
    const int64_t n0 = panel_begin * kPanelOutputs;
    RowBlock work;
    work.x = x + begin * row_bytes;
    work.w = w;
    work.steps = steps;
    work.widened = store;
    work.next = next.data();
    work.next_bytes = static_cast<int64_t>(next.size());
    work.scale = int8() ? args.weight->scales() + n0 : nullptr;
    work.outputs = std::min(args.weight->n(), panel_end * kPanelOutputs) - n0;
    work.y = args.y.row<float>(first_row + begin) + n0;
    work.y_stride = args.y.row_stride();
    work.bias = args.bias.empty() ? nullptr : args.bias.data<float>() + n0;
    work.accumulate = args.accumulate;
    functions[BlockBegin(block + 1) - begin - 1](work);
  }

  // Some panels stay in the L2 cache while all row blocks of the task use them, and all but the first fetch
  // the next ones; a single block has no use for that and runs through all of them.
  void MultiplyTask(int64_t block_begin, int64_t block_end, int64_t panel_begin, int64_t panel_end,
                    int worker) const {
    if (block_end - block_begin == 1)
      return Multiply(block_begin, panel_begin, panel_end, Weights(panel_begin), rows_of_weights(), nullptr,
                      {});
    std::byte* const wide = int8() ? widened + worker * (kPanelsPerSweep * steps * kStepBytes) : nullptr;
    for (int64_t panel = panel_begin; panel < panel_end; panel += kPanelsPerSweep) {
      const int64_t end = std::min(panel_end, panel + kPanelsPerSweep);
      Multiply(block_begin, panel, end, Weights(panel), rows_of_weights(), wide, {});
      const int64_t next_bytes = (std::min(panel_end, end + kPanelsPerSweep) - end) * PanelBytes();
      const int64_t others = block_end - block_begin - 1;
      for (int64_t i = 0; i < others; ++i) {
        const int64_t next = PartBegin(next_bytes, others, i);
        Multiply(block_begin + 1 + i, panel, end, int8() ? wide : Weights(panel), kernels.rows, nullptr,
                 {Weights(end) + next, static_cast<size_t>(PartBegin(next_bytes, others, i + 1) - next)});
      }
    }
  }

  // Wakes nobody; a task of the pool all the same, for denormals are zero in those alone.
  template <class Function>
  void OnCaller(Function function) const {
    pool.ParallelFor(1, [&function](int64_t, int worker) { function(worker); });
  }

  void Run() const {
    const int64_t k = args.x.dim(1);
    const int64_t n = args.weight->n();
    if (rows * k < kSerialPack)
      OnCaller([this](int) {
        for (int64_t block = 0; block < row_blocks; ++block) PackBlock(block);
      });
    else
      pool.ParallelFor(row_blocks, [this](int64_t block, int) { PackBlock(block); });

    const int64_t panels = DivideUp(n, kPanelOutputs);
    if (rows * n * k < kSerialMacs)
      return OnCaller([this, panels](int worker) { MultiplyTask(0, row_blocks, 0, panels, worker); });
    const int64_t block_bytes = DivideUp(rows, row_blocks) * row_bytes;
    const int64_t row_parts = DivideUp(row_blocks, std::max<int64_t>(1, kCacheBytes / block_bytes));
    int64_t panel_parts = DivideUp(kTasksPerThread * pool.num_threads(), row_parts);
    const int64_t fewest_panels = DivideUp(kSerialMacs, DivideUp(rows, row_parts) * k * kPanelOutputs);
    panel_parts = std::clamp<int64_t>(panel_parts, 1, DivideUp(panels, std::max(fewest_panels, int64_t{1})));
    int64_t panels_per_task = DivideUp(panels, panel_parts);
    if (row_blocks == 1 && panels_per_task > kPanelsTogether)
      panels_per_task = DivideUp(panels_per_task, kPanelsTogether) * kPanelsTogether;
    panel_parts = DivideUp(panels, panels_per_task);
    // Row parts run innermost, so that weights come from memory once per pass.
    pool.ParallelFor(panel_parts * row_parts, [&](int64_t task, int worker) {
      const int64_t row_part = task % row_parts;
      const int64_t panel_begin = task / row_parts * panels_per_task;
      MultiplyTask(PartBegin(row_blocks, row_parts, row_part), PartBegin(row_blocks, row_parts, row_part + 1),
                   panel_begin, std::min(panels, panel_begin + panels_per_task), worker);
    });
  }
};

}  // namespace

void MatmulCpu(const MatmulArgs& args, Stream& stream) {
  const PackedMatrix& weight = *args.weight;
  const int64_t m = args.x.dim(0);
  WEIR_CHECK(args.x.rank() == 2 && args.y.rank() == 2 && args.y.dim(0) == m);
  WEIR_CHECK(args.x.dim(1) == weight.k() && args.y.dim(1) == weight.n());
  WEIR_CHECK(args.bias.empty() || args.bias.num_elements() == weight.n());
  if (m == 0) return;

  const bool f32 = weight.dtype() == DType::kF32;
  const IsaKernels& isa = matmul::CurrentKernels();
  const RowKernels& kernels = f32 ? isa.f32 : isa.bf16;
  const int64_t steps = f32 ? weight.k() : DivideUp(weight.k(), 2);
  const int64_t row_bytes = DivideUp(steps, kChunkSteps) * kChunkSteps * kernels.x_step_bytes;
  const int64_t passes = DivideUp(m, kPassRows);
  thread_local Scratch scratch;
  const int64_t x_bytes = std::min(m, kPassRows) * row_bytes;  // a multiple of 64
  WorkerPool& pool = PoolOf(stream);
  const int64_t widened_bytes =
      weight.dtype() == DType::kI8 ? pool.num_threads() * kPanelsPerSweep * steps * kStepBytes : 0;
  std::byte* packed = scratch.Reserve(x_bytes + widened_bytes);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t begin = PartBegin(m, passes, pass);
    const int64_t rows = PartBegin(m, passes, pass + 1) - begin;
    Pass{args,      isa,    kernels,         pool, steps, begin, rows, DivideUp(rows, kernels.max_rows),
         row_bytes, packed, packed + x_bytes}
        .Run();
  }
}

}  // namespace weir
