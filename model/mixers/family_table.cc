#include "model/mixers/family_table.h"

#include <string_view>

#include "fmt/format.h"
#include "model/mixers/linear_attention.h"
#include "model/mixers/mamba.h"
#include "model/mixers/mamba2.h"
#include "model/mixers/softmax.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

struct Row {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<DecoderFamily>> (*read)(const ConfigReader&, const FamilyOptions&);
};

constexpr Row kTable[] = {
    {"LlamaForCausalLM", ReadLlamaFamily},
    {"LinearAttentionForCausalLM", ReadLinearAttentionFamily},
    {"PerformerForCausalLM", ReadPerformerFamily},
    {"MambaForCausalLM", ReadMambaFamily},
    {"FalconMambaForCausalLM", ReadFalconMambaFamily},
    {"Mamba2ForCausalLM", ReadMamba2Family},
    {"mamba_ssm Mamba1", ReadMambaSsmFamily},
    {"mamba_ssm Mamba2", ReadMambaSsm2Family},
};

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadFamily(const std::string& name, const ConfigReader& config,
                                                          const FamilyOptions& options) {
  std::string known;
  for (const Row& row : kTable) {
    if (row.name == name) return row.read(config, options);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  // Where no architecture is named, `name` is the model_type.
  bool named = false;
  if (config.Has("architectures")) {
    const auto names = config.StringList("architectures");
    named = !names.ok() || !names->empty();
  }
  if (!named)
    return config.Error("architectures",
                        fmt::format("is missing or empty, and 'model_type' {} alone does not "
                                    "name a model; known are {}",
                                    Quoted(name, 80), known));
  return config.Error("architectures",
                      fmt::format("{} is not served; known are {}", Quoted(name, 80), known));
}

}  // namespace weir
