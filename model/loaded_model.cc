#include "model/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "model/config/model_config.h"
#include "model/decoder.h"
#include "model/mixers/family_table.h"
#include "model/weights/content_hash.h"
#include "model/weights/weight_map.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/system_error.h"

namespace weir {
namespace {

class TokenizerText final : public TokenText {
 public:
  explicit TokenizerText(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::string_view Piece(int32_t id, bool at_start) const override { return tokenizer_->Piece(id, at_start); }
  bool IsSpecial(int32_t id) const override { return tokenizer_->IsSpecial(id); }
  int32_t size() const override { return tokenizer_->vocab_size(); }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
};

class IdsOnlyText final : public TokenText {
 public:
  explicit IdsOnlyText(int32_t size) : size_(size) {}
  std::string_view Piece(int32_t /*id*/, bool /*at_start*/) const override { return ""; }
  bool IsSpecial(int32_t /*id*/) const override { return false; }
  int32_t size() const override { return size_; }

 private:
  const int32_t size_;
};

absl::Status In(const std::string& folder, const absl::Status& status) {
  return absl::Status(status.code(),
                      fmt::format("model folder '{}': {}", folder, std::string(status.message())));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::string& model_folder,
                                                               const std::string& own_folder) {
  const std::string& folder = own_folder.empty() ? model_folder : own_folder;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(folder);
  if (tokenizer.ok()) return std::shared_ptr<const Tokenizer>(*std::move(tokenizer));
  if (!own_folder.empty())
    return absl::Status(tokenizer.status().code(), fmt::format("tokenizer folder '{}': {}", folder,
                                                               std::string(tokenizer.status().message())));
  if (!absl::IsNotFound(tokenizer.status())) return tokenizer.status();
  return absl::NotFoundError(
      "has no tokenizer.json; take that of another folder with --tokenizer FOLDER, or serve token ids only "
      "with --tokenizer none");
}

// What a wrong path is called by, before its first file is looked for.
absl::Status CheckFolder(const std::string& folder) {
  constexpr std::string_view kWhatIsOne =
      "a model is a folder with config.json, *.safetensors and tokenizer.json";
  std::error_code error;
  const auto found = std::filesystem::status(folder, error);
  if (found.type() == std::filesystem::file_type::not_found)
    return absl::NotFoundError(fmt::format("does not exist; {}", kWhatIsOne));
  if (error)
    return absl::FailedPreconditionError(
        fmt::format("cannot be reached: {}", SystemErrorText(error.value())));
  if (found.type() != std::filesystem::file_type::directory)
    return absl::InvalidArgumentError(fmt::format("is no folder; {}", kWhatIsOne));
  const std::filesystem::path path = std::filesystem::path(folder) / "config.json";
  const auto config = std::filesystem::status(path, error);
  if (config.type() == std::filesystem::file_type::not_found) {
    if (std::filesystem::is_symlink(path, error)) return absl::OkStatus();  // said by who opens it
    return absl::NotFoundError(fmt::format("has no config.json; {}", kWhatIsOne));
  }
  if (error)
    return absl::FailedPreconditionError(
        fmt::format("config.json cannot be reached: {}", SystemErrorText(error.value())));
  return absl::OkStatus();
}

// An id beyond the vocabulary can never come: said, for then the sequence does not end where it should.
void KeepEosIdsOf(int64_t vocab_size, LoadedModel* loaded) {
  for (const int32_t id : loaded->defaults.eos_token_ids) {
    if (id < vocab_size)
      loaded->eos_ids.push_back(id);
    else
      loaded->warnings.push_back(fmt::format(
          "eos_token_id {} is none of the {} ids of the model and will never end a sequence; correct "
          "generation_config.json or config.json",
          id, vocab_size));
  }
  std::sort(loaded->eos_ids.begin(), loaded->eos_ids.end());
}

absl::StatusOr<LoadedModel> Load(const std::string& folder, Device& device, const LoadOptions& options) {
  LoadedModel loaded;
  loaded.name = std::filesystem::path(folder).lexically_normal().filename().string();
  if (loaded.name.empty())
    loaded.name = std::filesystem::path(folder).lexically_normal().parent_path().filename().string();

  WEIR_RETURN_IF_ERROR(CheckFolder(folder));
  WEIR_ASSIGN_OR_RETURN(const ConfigReader config, LoadModelConfig(folder));
  WEIR_ASSIGN_OR_RETURN(loaded.architecture, Architecture(config));
  WEIR_RETURN_IF_ERROR(CheckQuantization(config));
  WEIR_ASSIGN_OR_RETURN(const WeightMap weights, WeightMap::Open(folder));
  WEIR_ASSIGN_OR_RETURN(loaded.defaults, GenerationDefaults::Load(folder));
  if (!options.ids_only) {
    WEIR_ASSIGN_OR_RETURN(loaded.tokenizer, LoadTokenizer(folder, options.tokenizer_folder));
    loaded.text = std::make_shared<TokenizerText>(loaded.tokenizer);
  }

  FamilyOptions family_options;
  family_options.kv_dtype = options.kv_dtype;
  WEIR_ASSIGN_OR_RETURN(const auto family, ReadFamily(loaded.architecture, config, family_options));
  loaded.mixer = family->mixer_name();
  const WeightLoader loader(weights, device, options.weight_dtype);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Load(*family, loader, &loaded.warnings));
  loaded.parameter_count = decoder->parameter_count();
  loaded.weight_bytes = decoder->weight_bytes();
  loaded.weight_dtype = decoder->weight_dtype();
  loaded.matrices = loader.matrices();
  const std::string& head = family->shape().head_name;
  if (weights.Has(head) &&
      std::find(loaded.matrices.begin(), loaded.matrices.end(), head) == loaded.matrices.end())
    loaded.unused_head = head;
  loaded.decoder = std::move(decoder);

  if (!loaded.tokenizer)
    loaded.text = std::make_shared<IdsOnlyText>(loaded.decoder->vocab_size());
  else if (loaded.tokenizer->vocab_size() > loaded.decoder->vocab_size())
    return absl::InvalidArgumentError(
        fmt::format("tokenizer.json has {} tokens but the model only {}; they do not belong together",
                    loaded.tokenizer->vocab_size(), loaded.decoder->vocab_size()));
  KeepEosIdsOf(loaded.decoder->vocab_size(), &loaded);
  WEIR_ASSIGN_OR_RETURN(loaded.weights_fingerprint, weights.Fingerprint());
  // The same weights with another rope_theta or number of heads are another model.
  ContentHash config_hash;
  const std::string config_values = config.ReadValues();
  config_hash.Update(std::as_bytes(std::span(config_values)));
  loaded.weights_fingerprint ^= config_hash.Finish() * 0xbf58476d1ce4e5b9u;
  // And so are other numbers made of them.
  if (loader.converted())
    loaded.weights_fingerprint ^= (1 + static_cast<uint64_t>(*options.weight_dtype)) * 0x94d049bb133111ebu;
  if (loaded.tokenizer) loaded.tokenizer_fingerprint = loaded.tokenizer->fingerprint();
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const std::string& folder, Device& device, const LoadOptions& options) {
  absl::StatusOr<LoadedModel> loaded = Load(folder, device, options);
  if (loaded.ok()) return loaded;
  const absl::Status status = In(folder, loaded.status());
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      fmt::format("{}; its weights do not fit beside what is there already: free memory, or choose another "
                  "device with --device",
                  std::string(status.message())));
}

}  // namespace weir
