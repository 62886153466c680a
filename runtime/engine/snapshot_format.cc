#include "runtime/engine/snapshot_format.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/state/kv_pool.h"
#include "runtime/state/state_arena.h"

namespace weir {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'I', 'R', 'S', 'N', 'A', 'P'};

static_assert(std::endian::native == std::endian::little);
static_assert(std::is_trivially_copyable_v<SnapshotHeader> && sizeof(SnapshotHeader) == 1712);
static_assert(std::has_unique_object_representations_v<SnapshotHeader>);  // no padding
static_assert(sizeof(SnapshotStateRow) == 72 && std::has_unique_object_representations_v<SnapshotStateRow>);

uint32_t DTypeCode(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 1;
    case DType::kF16:
      return 2;
    case DType::kBF16:
      return 3;
    default:
      WEIR_CHECK(false);
  }
  return 0;
}

std::string_view DTypeCodeName(uint32_t code) {
  return code == 1 ? "f32" : code == 2 ? "f16" : code == 3 ? "bf16" : "an unknown type";
}

template <size_t kSize>
void SetText(std::string_view text, char (&out)[kSize]) {
  std::memset(out, 0, kSize);
  std::memcpy(out, text.data(), std::min(text.size(), kSize - 1));
}

template <size_t kSize>
std::string GetText(const char (&text)[kSize]) {
  return std::string(text, strnlen(text, kSize));
}

// What does not fit, on both sides.
absl::Status Mismatch(std::string_view field, std::string_view found, std::string_view wanted) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "SNAPSHOT_MISMATCH",
      fmt::format("the state does not fit here: its {} is {}, wanted is {}", field, found, wanted),
      {{"field", std::string(field)}, {"found", std::string(found)}, {"wanted", std::string(wanted)}});
}

std::string RowText(const SnapshotStateRow& row) {
  std::string text = GetText(row.name) + " [";
  for (uint32_t i = 0; i < std::min(row.rank, 3u); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", row.shape[i]);
  return fmt::format("{}] {}", text, DTypeCodeName(row.dtype));
}

std::string StatesText(const std::vector<SnapshotStateRow>& rows, size_t at) {
  return at < rows.size() ? RowText(rows[at]) : fmt::format("{} tensors", rows.size());
}

std::string PagedText(uint32_t layers, uint32_t heads, uint32_t head_dim, uint32_t block_tokens,
                      uint32_t dtype) {
  if (layers == 0) return "none";
  return fmt::format("{} of {} layers, {} heads, {} numbers a head, {} tokens a block", DTypeCodeName(dtype),
                     layers, heads, head_dim, block_tokens);
}

std::string PagedText(const SnapshotHeader& h) {
  return PagedText(h.kv_layers, h.kv_heads, h.kv_head_dim, h.kv_block_tokens, h.kv_dtype);
}

void SetPaged(const SnapshotShape& shape, SnapshotHeader* header) {
  header->kv_layers = header->kv_heads = header->kv_head_dim = header->kv_block_tokens = header->kv_dtype = 0;
  if (shape.paged.num_layers == 0) return;
  header->kv_layers = static_cast<uint32_t>(shape.paged.num_layers);
  header->kv_heads = static_cast<uint32_t>(shape.paged.num_kv_heads);
  header->kv_head_dim = static_cast<uint32_t>(shape.paged.head_dim);
  header->kv_block_tokens = kKvBlockTokens;
  header->kv_dtype = DTypeCode(shape.paged.dtype);
}

// Elements of `Word` whose exponent bits are all set are infinite or NaN. Both ends are multiples of 8.
template <class Word>
bool WordsFinite(const char* begin, const char* end, Word exponent) {
  bool finite = true;
  for (; begin < end; begin += sizeof(Word)) {
    Word bits;
    std::memcpy(&bits, begin, sizeof(bits));
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

}  // namespace

// --- shape ---

SnapshotShape SnapshotShape::Of(const EngineModel& model) {
  SnapshotShape shape;
  shape.model = model.name;
  shape.mixer = model.mixer;
  shape.weights_fingerprint = model.weights_fingerprint;
  shape.tokenizer_fingerprint = model.tokenizer_fingerprint;
  shape.vocab_size = model.text->size();
  shape.context_limit = model.model->context_limit();
  const std::vector<StateSpec> specs = model.model->States();
  for (const StateSpec& spec : specs) {
    WEIR_CHECK(spec.shape.size() <= 3);
    SnapshotStateRow row = {};
    SetText(spec.name, row.name);
    row.dtype = DTypeCode(DType::kF32);
    row.rank = static_cast<uint32_t>(spec.shape.size());
    std::copy(spec.shape.begin(), spec.shape.end(), row.shape);
    shape.states.push_back(row);
  }
  shape.slot_bytes = StateArena::SlotBytes(specs);
  shape.paged = model.model->Paged();
  if (shape.paged.num_layers > 0) {
    shape.block_bytes = shape.paged.block_bytes(kKvBlockTokens);
    shape.kv_blocks = model.limits.kv_blocks;
  }
  WEIR_CHECK(shape.header_bytes() <= kMaxSnapshotHeaderBytes);
  return shape;
}

int64_t SnapshotShape::header_bytes() const {
  return static_cast<int64_t>(sizeof(SnapshotHeader) + states.size() * sizeof(SnapshotStateRow) +
                              sizeof(uint64_t));
}

int64_t SnapshotShape::NumBlocks(int64_t fed) const {
  return paged.num_layers > 0 ? KvPool::BlocksFor(fed) : 0;
}

// --- checksum ---

void SnapshotChecksum::AddWord(uint64_t word) {
  hash_ = (hash_ ^ word) * 0x100000001b3u;
  hash_ ^= hash_ >> 29;
}

void SnapshotChecksum::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t filled = size_ % 8;
    uint64_t word;
    if (filled == 0 && bytes.size() >= 8) {
      const size_t whole = bytes.size() / 8 * 8;
      for (size_t at = 0; at < whole; at += 8) {
        std::memcpy(&word, bytes.data() + at, 8);
        AddWord(word);
      }
      size_ += whole;
      bytes.remove_prefix(whole);
      continue;
    }
    const size_t taken = std::min(8 - filled, bytes.size());
    std::memcpy(partial_ + filled, bytes.data(), taken);
    size_ += taken;
    bytes.remove_prefix(taken);
    if (filled + taken == 8) {
      std::memcpy(&word, partial_, 8);
      AddWord(word);
    }
  }
}

uint64_t SnapshotChecksum::Get() const {
  SnapshotChecksum sum = *this;
  uint64_t last = 0;
  std::memcpy(&last, partial_, size_ % 8);
  sum.AddWord(last);
  sum.AddWord(size_);
  return (sum.hash_ ^ sum.hash_ >> 32) * 0x9e3779b97f4a7c15u;
}

// --- writing ---

SnapshotHeader MakeSnapshotHeader(const SnapshotShape& shape, const Sequence& sequence) {
  SnapshotHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kSnapshotVersion;
  header.header_bytes = static_cast<uint32_t>(shape.header_bytes());
  header.body_bytes = shape.BodyBytes(sequence.fed);
  header.weights_fingerprint = shape.weights_fingerprint;
  header.tokenizer_fingerprint = shape.tokenizer_fingerprint;
  SetText(shape.mixer, header.mixer);
  header.fed = sequence.fed;
  header.vocab_size = shape.vocab_size;
  header.num_states = static_cast<uint32_t>(shape.states.size());
  header.slot_bytes = shape.slot_bytes;
  header.num_kv_blocks = shape.NumBlocks(sequence.fed);
  SetPaged(shape, &header);
  WEIR_CHECK(sequence.num_pending() <= kChunkTokens);
  header.num_pending = static_cast<uint32_t>(sequence.num_pending());
  std::copy(sequence.waiting().begin(), sequence.waiting().end(), header.pending);
  header.history = sequence.history;
  header.text = sequence.text;
  header.has_text = sequence.has_text ? 1 : 0;
  return header;
}

std::string EncodeSnapshotHeader(const SnapshotShape& shape, const SnapshotHeader& header) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(shape.states.data()),
               shape.states.size() * sizeof(SnapshotStateRow));
  SnapshotChecksum sum;
  sum.Add(bytes);
  const uint64_t checksum = sum.Get();
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  WEIR_CHECK(bytes.size() == header.header_bytes);
  return bytes;
}

// --- reading ---

absl::Status SnapshotCorrupt(std::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss, "STATE_CORRUPT",
                   fmt::format("the state is damaged: {}; export it again", what));
}

absl::StatusOr<int64_t> ReadHeaderLength(std::string_view prefix) {
  WEIR_CHECK(prefix.size() == static_cast<size_t>(kSnapshotPrefixBytes));
  if (std::memcmp(prefix.data(), kMagic, sizeof(kMagic)) != 0)
    return SnapshotCorrupt("it does not start with WEIRSNAP, so it is no exported session");
  uint32_t version, header_bytes;
  std::memcpy(&version, prefix.data() + 8, 4);
  std::memcpy(&header_bytes, prefix.data() + 12, 4);
  if (version != kSnapshotVersion)
    return Mismatch("format version", std::to_string(version), std::to_string(kSnapshotVersion));
  if (header_bytes < sizeof(SnapshotHeader) + sizeof(uint64_t) || header_bytes > kMaxSnapshotHeaderBytes)
    return SnapshotCorrupt(fmt::format("its header says that it has {} bytes", header_bytes));
  return header_bytes;
}

absl::StatusOr<ParsedHeader> ReadSnapshotHeader(std::string_view bytes) {
  const size_t summed = bytes.size() - sizeof(uint64_t);
  SnapshotChecksum sum;
  sum.Add(bytes.substr(0, summed));
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + summed, sizeof(checksum));
  if (checksum != sum.Get()) return SnapshotCorrupt("the checksum of its header is wrong");
  ParsedHeader header;
  std::memcpy(&header.fixed, bytes.data(), sizeof(header.fixed));
  const size_t table = summed - sizeof(header.fixed);
  if (header.fixed.header_bytes != bytes.size() ||
      table != size_t{header.fixed.num_states} * sizeof(SnapshotStateRow))
    return SnapshotCorrupt("its state table does not match its header's length");
  header.states.resize(header.fixed.num_states);
  if (table > 0) std::memcpy(header.states.data(), bytes.data() + sizeof(header.fixed), table);
  return header;
}

absl::Status CheckSnapshotHeader(const ParsedHeader& parsed, const SnapshotShape& shape) {
  const SnapshotHeader& header = parsed.fixed;
  if (GetText(header.mixer) != shape.mixer)
    return Mismatch("mixer", Quoted(GetText(header.mixer)), Quoted(shape.mixer));
  for (size_t i = 0; i < std::max(parsed.states.size(), shape.states.size()); ++i)
    if (i >= parsed.states.size() || i >= shape.states.size() ||
        std::memcmp(&parsed.states[i], &shape.states[i], sizeof(SnapshotStateRow)) != 0)
      return Mismatch("state", StatesText(parsed.states, i), StatesText(shape.states, i));
  SnapshotHeader paged = {};
  SetPaged(shape, &paged);
  if (PagedText(header) != PagedText(paged)) return Mismatch("cache", PagedText(header), PagedText(paged));
  if (header.weights_fingerprint != shape.weights_fingerprint)
    return Mismatch("weights' fingerprint", fmt::format("{:016x}", header.weights_fingerprint),
                    fmt::format("{:016x} (models/{})", shape.weights_fingerprint, shape.model));
  if (header.tokenizer_fingerprint != shape.tokenizer_fingerprint || header.vocab_size != shape.vocab_size)
    return Mismatch("tokenizer's fingerprint", fmt::format("{:016x}", header.tokenizer_fingerprint),
                    fmt::format("{:016x} (models/{})", shape.tokenizer_fingerprint, shape.model));

  // From here on this model made it, or claims so.
  if (header.fed < 0 || header.fed > (int64_t{1} << 48))
    return SnapshotCorrupt("its position is out of range");
  if (header.num_pending > kChunkTokens) return SnapshotCorrupt("its pending tokens are out of range");
  if (shape.context_limit > 0 && header.position() > shape.context_limit)
    return SnapshotCorrupt("its position is beyond the model's context");
  if (header.slot_bytes != shape.slot_bytes || header.num_kv_blocks != shape.NumBlocks(header.fed) ||
      header.body_bytes != shape.BodyBytes(header.fed))
    return SnapshotCorrupt("its sizes do not match its position");
  if (header.has_text > 1 || !header.history.IsValid(shape.vocab_size) || !header.text.IsValid())
    return SnapshotCorrupt("its token history or text is not valid");
  for (uint32_t i = 0; i < header.num_pending; ++i)
    if (header.pending[i] < 0 || header.pending[i] >= shape.vocab_size)
      return SnapshotCorrupt("a pending token is not in the vocabulary");
  // What is to be zero is zero: an accepted file is the one that its session exports as.
  SnapshotHeader exact = header;
  SetText(shape.mixer, exact.mixer);
  SetPaged(shape, &exact);
  std::fill(exact.pending + header.num_pending, exact.pending + kChunkTokens, 0);
  std::fill(std::begin(exact.reserved), std::end(exact.reserved), 0);
  if (std::memcmp(&exact, &header, sizeof(header)) != 0)
    return SnapshotCorrupt("a part of its header that is to be zero is not");
  if (header.num_kv_blocks > shape.kv_blocks)
    return MakeError(
        absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
        fmt::format("the session needs {} KV blocks of {} bytes, models/{} has {}; start the "
                    "server with more --kv-memory",
                    header.num_kv_blocks, shape.block_bytes, shape.model, shape.kv_blocks),
        {{"blocks", std::to_string(header.num_kv_blocks)}, {"capacity", std::to_string(shape.kv_blocks)}});
  return absl::OkStatus();
}

bool BodyIsFinite(const SnapshotShape& shape, const char* body, int64_t from, int64_t to) {
  const int64_t slot_end = std::clamp(shape.slot_bytes, from, to);
  if (!WordsFinite<uint32_t>(body + from, body + slot_end, 0x7f800000u)) return false;
  switch (shape.paged.dtype) {
    case DType::kF16:
      return WordsFinite<uint16_t>(body + slot_end, body + to, 0x7c00);
    case DType::kBF16:
      return WordsFinite<uint16_t>(body + slot_end, body + to, 0x7f80);
    default:
      return WordsFinite<uint32_t>(body + slot_end, body + to, 0x7f800000u);
  }
}

}  // namespace weir
