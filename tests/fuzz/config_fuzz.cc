// config.json and generation_config.json. The first byte chooses the architecture; 0 leaves it to the file.
#include <fstream>
#include <iterator>
#include <string>

#include "model/config/generation_config.h"
#include "model/config/model_config.h"
#include "model/mixers/family_table.h"
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_dir.h"

namespace {

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const testing::TempDir folder;
  static constexpr const char* kArchitectures[] = {
      "LlamaForCausalLM", "LinearAttentionForCausalLM", "MambaForCausalLM", "FalconMambaForCausalLM",
      "mamba_ssm Mamba1", "Mamba2ForCausalLM",          "mamba_ssm Mamba2", "PerformerForCausalLM"};
  fuzz::FuzzInput input(data, size);
  const size_t choice = input.Below(std::size(kArchitectures) + 1);
  const std::string config_json = input.Text();
  const auto config = ConfigReader::Parse(config_json, "config.json");
  if (config.ok()) {
    const auto named = Architecture(*config);
    const std::string name = choice > 0 ? kArchitectures[choice - 1] : named.ok() ? *named : "";
    const auto family = ReadFamily(name, *config, {});
    if (family.ok()) {
      WEIR_CHECK(!(*family)->mixer_name().empty());
    } else {
      WEIR_CHECK(!family.status().message().empty());
    }
  }
  Write(folder.path() + "/config.json", config_json);
  Write(folder.path() + "/generation_config.json", std::string(input.rest()));
  const auto defaults = GenerationDefaults::Load(folder.path());
  if (defaults.ok() && defaults->top_k) WEIR_CHECK(*defaults->top_k >= 0);
  return 0;
}
