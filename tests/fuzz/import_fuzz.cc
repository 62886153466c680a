// An exported session on its way in: whatever is accepted can be restored, and exports as the same bytes.
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/session_table.h"
#include "runtime/engine/snapshot_intake.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/fake_model.h"

namespace weir {
namespace {

// Makes the checksums right, so that what they guard is looked at, too.
void RepairChecksums(std::string* file) {
  uint32_t header = 0;
  if (file->size() < 24) return;
  std::memcpy(&header, file->data() + 12, sizeof(header));
  for (const size_t end : {size_t{header}, file->size()}) {
    if (end < 24 || end > file->size()) continue;
    SnapshotChecksum sum;
    sum.Add(std::string_view(*file).substr(0, end - 8));
    const uint64_t checksum = sum.Get();
    std::memcpy(file->data() + end - 8, &checksum, sizeof(checksum));
  }
}

void Run(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  testing::FakeModelOptions model_options;
  const uint8_t flags = input.Byte();
  model_options.paged = flags & 1;
  model_options.context_limit = model_options.paged ? 200 : 0;
  const size_t piece = 1 + input.Byte();
  std::string file(input.rest());
  if (flags & 2) RepairChecksums(&file);

  const EngineModel model = testing::MakeFakeEngineModel(model_options, {.slots = 1, .kv_blocks = 2});
  const std::vector<SnapshotShape> shapes = {SnapshotShape::Of(model)};
  MemoryBudget budget(1 << 20);
  std::shared_ptr<SnapshotImage> image;
  {
    SnapshotIntake intake(&shapes, &budget, -1, static_cast<int64_t>(file.size()));
    absl::Status status;
    for (size_t at = 0; at < file.size() && status.ok(); at += piece)
      status = intake.Add(std::string_view(file).substr(at, piece));
    if (status.ok()) {
      auto whole = intake.Finish();
      status = whole.status();
      if (whole.ok()) image = *std::move(whole);
    }
    WEIR_CHECK(status.message().size() < 4096);
  }
  if (image == nullptr) {
    WEIR_CHECK(budget.used() == 0);
    return;
  }

  const std::unique_ptr<Device> device = CreateCpuDevice(1);
  const EngineOptions options;
  auto table = SessionTable::Create(0, model, *device, options, &budget);
  WEIR_CHECK(table.ok());
  Engine::CreateParams params;
  params.id = "s";
  {
    auto work = (*table)->StartImport(params, image);
    if (!work.ok()) return;  // more blocks than there are
    for (bool copied = false; !copied;) {
      const absl::StatusOr<bool> step = work->step();
      WEIR_CHECK(step.ok());
      copied = *step;
    }
    WEIR_CHECK(work->finish(absl::UnixEpoch()).ok());
  }
  const auto exported = (*table)->StartExport("s", "", "");
  WEIR_CHECK(exported.ok());
  std::string again;
  while ((*exported)->reader.remaining() > 0) {
    const absl::StatusOr<std::string> read = (*exported)->reader.Read(static_cast<int64_t>(piece));
    WEIR_CHECK(read.ok());
    again += *read;
  }
  // What lies behind the last token may have come as anything; it leaves as zeros.
  WEIR_CHECK(again.size() == file.size() && (model_options.paged || again == file));
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::Run(data, size);
  return 0;
}
