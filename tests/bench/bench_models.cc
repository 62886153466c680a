#include "tests/bench/bench_models.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "runtime/base/check.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::bench {
namespace {

constexpr int kMaxPositions = 32768;

LoadedModel Load(const std::string& folder, Device& device, std::optional<DType> served = std::nullopt) {
  LoadOptions options;
  options.weight_dtype = served;
  absl::StatusOr<LoadedModel> loaded = LoadModel(folder, device, options);
  if (!loaded.ok()) std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
  WEIR_CHECK(loaded.ok());
  return *std::move(loaded);
}

}  // namespace

void SetMaxPositions(const std::string& folder, int positions) {
  const std::string path = folder + "/config.json";
  std::ifstream in(path);
  nlohmann::json config = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  WEIR_CHECK(config.is_object());
  config["max_position_embeddings"] = positions;
  std::ofstream out(path, std::ios::trunc);
  out << config.dump();
  out.close();
  WEIR_CHECK(out.good());
}

testing::TinyModelOptions SyntheticOptions(const std::string& mixer) {
  testing::TinyModelOptions options;
  options.mixer = mixer;
  options.dtype = DType::kBF16;
  if (mixer == "mamba") {
    options.vocab_size = 50280;
    options.d_model = 768;
    options.num_layers = 24;
    options.mamba = {.d_inner = 1536, .state_dim = 16, .dt_rank = 48};
  } else if (mixer == "mamba2") {
    options.vocab_size = 50288;
    options.d_model = 768;
    options.num_layers = 24;
    options.num_heads = 24;
    options.num_kv_heads = 1;
    options.state_dim = 128;
  } else {
    options.vocab_size = 49152;
    options.d_model = 576;
    options.num_layers = 30;
    options.num_heads = 9;
    options.num_kv_heads = 3;
    options.d_ff = 1536;
    options.num_features = 64;
  }
  return options;
}

void WriteSynthetic(const std::string& folder, const std::string& mixer) {
  WriteTinyModel(folder, SyntheticOptions(mixer));
  if (!mixer.starts_with("mamba")) SetMaxPositions(folder, kMaxPositions);
}

LoadedModel Synthesize(const std::string& mixer, Device& device, std::optional<DType> served) {
  const testing::TempDir folder;
  WriteSynthetic(folder.path(), mixer);
  return Load(folder.path(), device, served);
}

std::string ZooFolder(const std::string& name) { return std::string(WEIR_SOURCE_DIR "/model/zoo/") + name; }

LoadedModel LoadZooModel(const std::string& name, Device& device) {
  const testing::TempDir folder;
  std::filesystem::copy(ZooFolder(name), folder.path(), std::filesystem::copy_options::recursive);
  SetMaxPositions(folder.path(), kMaxPositions);
  return Load(folder.path(), device);
}

}  // namespace weir::bench
