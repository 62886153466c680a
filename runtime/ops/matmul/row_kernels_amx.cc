// Row kernels for AMX: tiles of 16 rows times 32 values of k times 16 outputs. Packed activations and panels
// are tiles already: a chunk of rows is one of 64-byte rows, 16 steps of a panel are two that lie side by
// side. Compiled with those flags; reached only where the CPU has them and the system lets this process use
// them.
#include <immintrin.h>

#include <array>
#include <utility>

#include "runtime/ops/matmul/int8_bytes.h"
#include "runtime/ops/matmul/row_kernels.h"

namespace weir::matmul {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileOutputs = 16;
constexpr int kMaxRows = 2 * kTileRows;
constexpr int kChunkBytes = kChunkSteps * kStepBytes;  // of a panel of bf16
constexpr int kInt8ChunkBytes = kChunkSteps * kInt8StepBytes;

// Tile registers: 0 to 3 hold sums, of one tile of rows and two of outputs or of two and two; 4 and 5
// activations, 6 and 7 weights.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler does not know that loading tiles and their configuration reads memory: stores stay on their
// side.
inline void OrderStores() { __asm__ volatile("" : : : "memory"); }

void Configure(int rows) {
  TileConfig config;
  const int first = rows < kTileRows ? rows : kTileRows;
  const int second = rows > kTileRows ? rows - kTileRows : first;  // `first`: unused
  const int tile_rows[8] = {first, first, second, second, first, second, kChunkSteps, kChunkSteps};
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = static_cast<uint8_t>(tile_rows[tile]);
  }
  OrderStores();
  _tile_loadconfig(&config);
}

// Chunks of a panel as tiles can read them: bf16, 16 steps each. Those of `Prepare` are there for `At`.
class Bf16Panel {
 public:
  static constexpr int kWeightStepBytes = kStepBytes;
  Bf16Panel(const RowBlock& block, int64_t panel)
      : w_(block.w + panel * block.steps * kStepBytes), steps_(block.steps) {}

  void Prepare(int64_t chunk) {
    if (steps_ - chunk * kChunkSteps >= kChunkSteps) return;
    const int64_t left = steps_ - chunk * kChunkSteps;
    for (int64_t i = 0; i < 2 * kChunkSteps; ++i)
      _mm512_store_si512(last_ + i * 64, i < 2 * left ? _mm512_loadu_si512(w_ + chunk * kChunkBytes + i * 64)
                                                      : _mm512_setzero_si512());
  }
  const std::byte* At(int64_t chunk) const {
    return steps_ - chunk * kChunkSteps >= kChunkSteps ? w_ + chunk * kChunkBytes : last_;
  }

 private:
  const std::byte* w_;
  int64_t steps_;
  alignas(64) std::byte last_[kChunkBytes];  // filled up with zeros
};

// int8 to bf16 as row_kernels_avx512_vbmi.cc does it, but with tables of one register: where there is AMX, a
// look-up in two is three operations.
alignas(64) constexpr std::array<uint8_t, 64> kHigh = BytesOfBf16<64>(24);
alignas(64) constexpr std::array<uint8_t, 64> kLow = BytesOfBf16<64>(16);

// A step of a panel of bf16: its lower and its upper 16 outputs.
struct WidePanelStep {
  __m512i low, high;
};

// `q`: a step of a panel of int8, from -127 to 127 unless kMinus128.
template <bool kMinus128>
inline WidePanelStep WidenPanelStep(__m512i q) {
  const __m512i magnitude = _mm512_abs_epi8(q);
  // From 64 on the high byte is that of 63, and the low one is the number twice: 1 and its last six bits.
  const __m512i twice = _mm512_add_epi8(magnitude, magnitude);
  const __m512i low = _mm512_mask_mov_epi8(_mm512_permutexvar_epi8(magnitude, _mm512_load_si512(kLow.data())),
                                           _mm512_movepi8_mask(twice), twice);
  const __m512i below_64 = _mm512_min_epu8(magnitude, _mm512_set1_epi8(63));
  // high | (q & 0x80)
  __m512i high = _mm512_ternarylogic_epi32(_mm512_permutexvar_epi8(below_64, _mm512_load_si512(kHigh.data())),
                                           q, _mm512_set1_epi8(-128), 0xF8);
  if constexpr (kMinus128) {  // its low byte is 0 already; as bf16 it is 0xC300
    const __mmask64 lowest = _mm512_cmpeq_epi8_mask(q, _mm512_set1_epi8(-128));
    high = _mm512_mask_mov_epi8(high, lowest, _mm512_set1_epi8(static_cast<char>(0xC3)));
  }
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
}

template <bool kMinus128>
class Int8Panel {
 public:
  static constexpr int kWeightStepBytes = kInt8StepBytes;
  Int8Panel(const RowBlock& block, int64_t panel)
      : w_(block.w + panel * block.steps * kInt8StepBytes),
        wide_(block.widened == nullptr ? nullptr : block.widened + panel * block.steps * kStepBytes),
        steps_(block.steps) {}

  void Prepare(int64_t chunk) {
    const int64_t left = steps_ - chunk * kChunkSteps;
    const std::byte* w = w_ + chunk * kInt8ChunkBytes;
    std::byte* to = recent_[chunk % 2];
    if (left >= kChunkSteps) {
      if (wide_ != nullptr) to = wide_ + chunk * kChunkBytes;
      for (int64_t s = 0; s < kChunkSteps; ++s) Widen(w + s * kInt8StepBytes, to + s * kStepBytes);
      return;
    }
    for (int64_t s = 0; s < left; ++s) {
      Widen(w + s * kInt8StepBytes, to + s * kStepBytes);
      if (wide_ != nullptr) Widen(w + s * kInt8StepBytes, wide_ + chunk * kChunkBytes + s * kStepBytes);
    }
    for (int64_t i = 2 * left; i < 2 * kChunkSteps; ++i)
      _mm512_store_si512(to + i * 64, _mm512_setzero_si512());
  }
  const std::byte* At(int64_t chunk) const {
    return wide_ != nullptr && steps_ - chunk * kChunkSteps >= kChunkSteps ? wide_ + chunk * kChunkBytes
                                                                           : recent_[chunk % 2];
  }

 private:
  static void Widen(const std::byte* from, std::byte* to) {
    const WidePanelStep wide = WidenPanelStep<kMinus128>(_mm512_loadu_si512(from));
    _mm512_storeu_si512(to, wide.low);
    _mm512_storeu_si512(to + 64, wide.high);
  }

  const std::byte* w_;
  std::byte* wide_;
  int64_t steps_;
  alignas(64) std::byte recent_[2][kChunkBytes];
};

// Scales, adds the bias and the old y, in this order, and writes the outputs of a tile from `first` of the
// run on.
void Finish(const RowBlock& block, int64_t row, int rows, int64_t first, const float* sums) {
  const int64_t left = block.outputs - first;
  if (left <= 0) return;
  const auto valid = static_cast<__mmask16>(left >= kTileOutputs ? 0xffff : (1 << left) - 1);
  const __m512 scale = block.scale != nullptr ? _mm512_maskz_loadu_ps(valid, block.scale + first) : __m512{};
  const __m512 bias = block.bias != nullptr ? _mm512_maskz_loadu_ps(valid, block.bias + first) : __m512{};
  float* y = block.y + row * block.y_stride + first;
  for (int r = 0; r < rows; ++r, y += block.y_stride) {
    __m512 sum = _mm512_load_ps(sums + r * kTileOutputs);
    if (block.scale != nullptr) sum = _mm512_mul_ps(sum, scale);
    if (block.bias != nullptr) sum = _mm512_add_ps(sum, bias);
    if (block.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(valid, y), sum);
    _mm512_mask_storeu_ps(y, valid, sum);
  }
}

// Brings what is read next into the cache while tiles are multiplied: the processor's own prefetching does
// not see far enough past loads of whole tiles. Reads nothing: addresses beyond the weights are harmless.
class Ahead {
 public:
  Ahead(const RowBlock& block, int64_t panel_bytes, int64_t panels, int64_t chunks) {
    const int64_t own = panel_bytes * panels;
    at_ = block.next == nullptr ? block.w + kDistance : block.next;
    lines_ = ((block.next == nullptr ? own : block.next_bytes) + panels * chunks * 64 - 1) /
             (panels * chunks * 64);
  }
  void Fetch() {
    for (int64_t line = 0; line < lines_; ++line, at_ += 64)
      _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T0);
  }

 private:
  static constexpr int64_t kDistance = 4096;  // by measurement
  const std::byte* at_;
  int64_t lines_;  // for each chunk
};

// All rows times a panel. An output is one chain of tile products in the order of k, whichever tile it is in.
template <class Panel, int kRowTiles>
void Tiles(const RowBlock& block, int rows, int64_t first_panel, Ahead& ahead) {
  const int64_t chunks = (block.steps + kChunkSteps - 1) / kChunkSteps;
  Panel panel(block, first_panel);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kRowTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  panel.Prepare(0);
  const std::byte* x = block.x;
  for (int64_t chunk = 0; chunk < chunks; ++chunk, x += rows * kTileRowBytes) {
    if (chunk + 1 < chunks) panel.Prepare(chunk + 1);
    ahead.Fetch();
    OrderStores();
    const std::byte* w = panel.At(chunk);
    _tile_loadd(4, x, kTileRowBytes);
    _tile_loadd(6, w, kStepBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + kTileRowBytes, kStepBytes);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRowTiles == 2) {
      _tile_loadd(5, x + kTileRows * kTileRowBytes, kTileRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    OrderStores();
  }
  alignas(64) float sums[2 * kRowTiles][kTileRows * kTileOutputs];
  _tile_stored(0, sums[0], kTileRowBytes);
  _tile_stored(1, sums[1], kTileRowBytes);
  const int64_t output = first_panel * kPanelOutputs;
  const int first_rows = rows < kTileRows ? rows : kTileRows;
  Finish(block, 0, first_rows, output, sums[0]);
  Finish(block, 0, first_rows, output + kTileOutputs, sums[1]);
  if constexpr (kRowTiles == 2) {
    _tile_stored(2, sums[2], kTileRowBytes);
    _tile_stored(3, sums[3], kTileRowBytes);
    Finish(block, kTileRows, rows - kTileRows, output, sums[2]);
    Finish(block, kTileRows, rows - kTileRows, output + kTileOutputs, sums[3]);
  }
}

template <class Panel, int kRows>
void Rows(const RowBlock& block) {
  Configure(kRows);
  const int64_t panels = (block.outputs + kPanelOutputs - 1) / kPanelOutputs;
  Ahead ahead(block, block.steps * Panel::kWeightStepBytes, panels,
              (block.steps + kChunkSteps - 1) / kChunkSteps);
  for (int64_t panel = 0; panel < panels; ++panel)
    Tiles<Panel, (kRows > kTileRows ? 2 : 1)>(block, kRows, panel, ahead);
  _tile_release();
}

template <class Panel, class>
struct Functions;
template <class Panel, int... kRowsLessOne>
struct Functions<Panel, std::integer_sequence<int, kRowsLessOne...>> {
  static constexpr RowsFunction kRows[] = {Rows<Panel, kRowsLessOne + 1>...};
};
template <class Panel>
constexpr const RowsFunction* kRowFunctions =
    Functions<Panel, std::make_integer_sequence<int, kMaxRows>>::kRows;

}  // namespace

constinit const AmxKernels kAmxKernels = {kMaxRows, kRowFunctions<Bf16Panel>, kRowFunctions<Int8Panel<false>>,
                                          kRowFunctions<Int8Panel<true>>};

}  // namespace weir::matmul
