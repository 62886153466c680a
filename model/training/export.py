"""Write a Hugging Face folder (bf16 safetensors, configs, tokenizer) from fp32 masters, and read one back.

The softmax twin is a plain `LlamaForCausalLM`, the Mamba twins are plain `MambaForCausalLM` and `Mamba2ForCausalLM`.  The
linear twin follows flash-linear-attention's `linear_attn` layout, with that library's names for the short convolutions
and the output gate of its other layers; the Performer is the linear twin with `features` in every layer.

    python export.py --checkpoint RUN/checkpoint.pt --tokenizer RUN/tokenizer.json --out DIR
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import FLOAT32, SSM, Config, Decoder

SERVED_CONTEXT = 16384  # what max_position_embeddings says; the trained length is under "trained_length"


def ssm_config_json(c):
    common = {"state_size": c.state_size, "expand": c.expand, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True,
              "layer_norm_epsilon": c.norm_eps, "hidden_act": "silu", "residual_in_fp32": True,
              "rescale_prenorm_residual": False}
    if c.mixer == "mamba":
        return {"architectures": ["MambaForCausalLM"], "model_type": "mamba", **common,
                "intermediate_size": c.inner_size, "time_step_rank": -(-c.hidden_size // 16)}
    return {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", **common,
            "num_heads": c.inner_size // c.ssm_head_dim, "head_dim": c.ssm_head_dim, "n_groups": 1,
            "chunk_size": c.ssm_chunk, "rms_norm": True, "norm_before_gate": False,
            "time_step_limit": [0.0, float("inf")]}  # written as a bare Infinity, as Hugging Face does


def config_json(config, trained_length):
    c = config
    common = {
        "vocab_size": c.vocab_size, "hidden_size": c.hidden_size, "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers, "max_position_embeddings": SERVED_CONTEXT, "tie_word_embeddings": True,
        "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "bfloat16", "initializer_range": 0.02, "use_cache": True,
        "trained_length": trained_length}
    if c.mixer == "softmax":
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **common,
                "num_attention_heads": c.num_heads, "num_key_value_heads": c.num_heads, "head_dim": c.head_dim,
                "hidden_act": "silu", "rms_norm_eps": c.norm_eps, "rope_theta": c.rope_theta, "rope_scaling": None,
                "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False}
    if c.mixer in SSM:
        del common["intermediate_size"]
        return {**ssm_config_json(c), **common}
    kind = {"architectures": ["LinearAttentionForCausalLM"], "model_type": "linear_attn"}
    feature_map = {"feature_map": "elu"}
    if c.mixer == "performer":
        kind = {"architectures": ["PerformerForCausalLM"], "model_type": "performer"}
        feature_map = {"feature_map": "favor+", "num_features": c.num_features}
    return {**kind, **common,
            "attn_mode": "chunk", "expand_k": 1.0, "expand_v": 1.0, "num_heads": c.num_heads, "num_kv_heads": None,
            **feature_map, "tie_feature_map_qk": False, "norm_q": False, "norm_k": False,
            "norm_feature_map": True, "elementwise_affine": True, "norm_eps": c.norm_eps, "hidden_act": "swish",
            "use_short_conv": c.conv, "conv_size": 4, "conv_bias": False, "use_output_gate": c.gate}


SSM_TENSORS = {
    "mamba": ["in_proj.weight", "conv1d.weight", "conv1d.bias", "x_proj.weight", "dt_proj.weight", "dt_proj.bias", "A_log",
              "D", "out_proj.weight"],
    "mamba2": ["in_proj.weight", "conv1d.weight", "conv1d.bias", "dt_bias", "A_log", "D", "norm.weight", "out_proj.weight"]}


def ssm_tensor_names(config):
    yield "embeddings.weight", None, "backbone.embeddings.weight"
    yield "norm.weight", None, "backbone.norm_f.weight"
    for i in range(config.num_layers):
        yield f"layers.{i}.attn_norm.weight", None, f"backbone.layers.{i}.norm.weight"
        for name in SSM_TENSORS[config.mixer]:
            yield f"layers.{i}.attn.{name}", None, f"backbone.layers.{i}.mixer.{name}"


def tensor_names(config):
    """Triples (our parameter, part of it or None, name in the file)."""
    if config.mixer in SSM:
        yield from ssm_tensor_names(config)
        return
    llama = config.mixer == "softmax"
    yield "embeddings.weight", None, "model.embed_tokens.weight" if llama else "model.embeddings.weight"
    yield "norm.weight", None, "model.norm.weight"
    for i in range(config.num_layers):
        ours, theirs = f"layers.{i}", f"model.layers.{i}"
        attn = "self_attn" if llama else "attn"
        yield f"{ours}.attn_norm.weight", None, f"{theirs}.{'input_layernorm' if llama else 'attn_norm'}.weight"
        yield f"{ours}.mlp_norm.weight", None, f"{theirs}.{'post_attention_layernorm' if llama else 'mlp_norm'}.weight"
        for p in "qkvo":
            yield f"{ours}.attn.{p}_proj.weight", None, f"{theirs}.{attn}.{p}_proj.weight"
        for p in ("gate", "up", "down"):
            yield f"{ours}.mlp.{p}_proj.weight", None, f"{theirs}.mlp.{p}_proj.weight"
        if llama:
            continue
        if config.conv:
            for index, p in enumerate("qkv"):
                yield f"{ours}.attn.conv", index, f"{theirs}.attn.{p}_conv1d.weight"
        if config.gate:
            yield f"{ours}.attn.g_proj.weight", None, f"{theirs}.attn.g_proj.weight"
        if config.mixer == "performer":
            yield f"{ours}.attn.features", None, f"{theirs}.attn.features"
        yield f"{ours}.attn.norm.weight", None, f"{theirs}.attn.{'g_norm_swish_gate' if config.gate else 'norm'}.weight"


def dump(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write(master, config, tokenizer_file, out, trained_length):
    out.mkdir(parents=True, exist_ok=True)
    tensors, used = {}, set()
    for ours, part, theirs in tensor_names(config):
        value = master[ours] if part is None else master[ours][part][:, None, :]
        exact = theirs.endswith(FLOAT32)
        tensors[theirs] = value.detach().to(torch.float32 if exact else torch.bfloat16).contiguous().clone()
        used.add(ours)
    assert used == set(master), sorted(set(master) - used)
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    dump(out / "config.json", config_json(config, trained_length))
    dump(out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 0, "do_sample": True,
                                          "temperature": 0.7, "top_p": 0.9})
    if tokenizer_file is None:
        return
    mark = "<|endoftext|>"
    dump(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": mark, "eos_token": mark, "unk_token": mark,
        "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "model_max_length": SERVED_CONTEXT})
    tokenizer = json.loads(Path(tokenizer_file).read_text(encoding="utf-8"))  # without the indentation: 49 kB for 123
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def config_of(c):
    """Config from config.json."""
    kind = c["model_type"]
    common = {"vocab_size": c["vocab_size"], "hidden_size": c["hidden_size"], "num_layers": c["num_hidden_layers"]}
    if kind in SSM:
        return Config(mixer=kind, intermediate_size=0, state_size=c["state_size"], expand=c["expand"],
                      ssm_head_dim=c.get("head_dim", 64), norm_eps=c["layer_norm_epsilon"], **common)
    if kind == "llama":
        return Config(mixer="softmax", intermediate_size=c["intermediate_size"], num_heads=c["num_attention_heads"],
                      norm_eps=c["rms_norm_eps"], rope_theta=c["rope_theta"], **common)
    return Config(mixer={"linear_attn": "linear", "performer": "performer"}[kind], conv=c["use_short_conv"],
                  gate=c["use_output_gate"], intermediate_size=c["intermediate_size"], num_heads=c["num_heads"],
                  norm_eps=c["norm_eps"], num_features=c.get("num_features", 128), **common)


def read(folder, dtype=torch.float32):
    """A Decoder with the folder's (bf16-rounded) weights in `dtype`."""
    config = config_of(json.loads((Path(folder) / "config.json").read_text()))
    model = Decoder(config).to(dtype)
    tensors = load_file(str(Path(folder) / "model.safetensors"))
    state = model.state_dict()
    with torch.no_grad():
        for ours, part, theirs in tensor_names(config):
            value = tensors.pop(theirs).to(dtype)
            if part is None:
                state[ours].copy_(value)
            else:
                state[ours][part].copy_(value[:, 0, :])
    assert not tensors, sorted(tensors)
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trained-length", type=int, default=512)
    args = parser.parse_args()
    saved = torch.load(args.checkpoint)
    write({**saved["optimizer"]["master"], **saved["buffers"]}, Config(**saved["config"]), args.tokenizer, args.out,
          args.trained_length)


if __name__ == "__main__":
    main()
