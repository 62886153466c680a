"""Write the golden cases, one small JSON each: a config, tensors as hashes (filling.py), token ids and logits.

    pip install -r requirements.txt
    python generate.py --mamba-ssm mamba_ssm-2.3.2.post1 --fla fla_core-unzipped [CASE ...]

Each case is computed at least twice: by the reference implementation (Hugging Face transformers in float32, or
functions of the authors' sources) and by a float64 loop of our own (reference.py).  Tests read the JSON only.
"""

import argparse
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import torch
import transformers

import reference
from authors import Authors
from filling import fill, tokens

HERE = Path(__file__).parent
INF = float("inf")
LIMIT = 3e-5  # largest difference between two computations of a case, in logits of size about 1 to 5


def tensor(name, shape, gain=None, offset=0.0, scale=None):
    """A matrix of unit gain unless said otherwise: inputs of variance 1 give outputs of variance gain^2."""
    scale = scale if scale is not None else (gain or 1.0) * math.sqrt(3 / shape[-1])
    return {"name": name, "shape": list(shape), "dtype": "float32", "scale": round(scale, 4), "offset": offset}


def norm(name, size):
    return tensor(name, [size], scale=0.3, offset=1.0)


def ends(c, embedding, last_norm):
    """Embedding, final norm and, where not tied, the head; logits of size about 1."""
    d, v = c["hidden_size"], c["vocab_size"]
    yield tensor(embedding, [v, d], **({"gain": 1.0} if c["tie_word_embeddings"] else {"scale": 1.0}))
    yield norm(last_norm, d)
    if not c["tie_word_embeddings"]:
        yield tensor("lm_head.weight", [v, d])


def llama_tensors(c):
    d, m = c["hidden_size"], c["intermediate_size"]
    size = c.get("head_dim") or d // c["num_attention_heads"]
    yield from ends(c, "model.embed_tokens.weight", "model.norm.weight")
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield norm(p + "input_layernorm.weight", d)
        yield norm(p + "post_attention_layernorm.weight", d)
        yield tensor(p + "self_attn.q_proj.weight", [c["num_attention_heads"] * size, d], gain=1.5)
        yield tensor(p + "self_attn.k_proj.weight", [c["num_key_value_heads"] * size, d], gain=1.5)
        yield tensor(p + "self_attn.v_proj.weight", [c["num_key_value_heads"] * size, d])
        yield tensor(p + "self_attn.o_proj.weight", [d, c["num_attention_heads"] * size])
        yield tensor(p + "mlp.gate_proj.weight", [m, d])
        yield tensor(p + "mlp.up_proj.weight", [m, d])
        yield tensor(p + "mlp.down_proj.weight", [d, m])


A_LOG = {"scale": 1.64, "offset": 0.44}  # A from -0.30 to -8.0
DT_BIAS = {"scale": 2.1, "offset": -2.5}  # dt from 0.01 to 0.5 before its input is added


def projection(name, rows, columns, bias):
    yield tensor(name + ".weight", [rows, columns])
    if bias:
        yield tensor(name + ".bias", [rows], scale=0.3)


def convolution(name, channels, c):
    yield tensor(name + ".weight", [channels, 1, c["conv_kernel"]], gain=1.3)
    if c["use_conv_bias"]:
        yield tensor(name + ".bias", [channels], scale=0.3)


def mamba_tensors(c):
    d, n, r = c["hidden_size"], c["state_size"], c["time_step_rank"]
    inner = c["expand"] * d
    yield from ends(c, "backbone.embeddings.weight", "backbone.norm_f.weight")
    for i in range(c["num_hidden_layers"]):
        p = f"backbone.layers.{i}."
        yield norm(p + "norm.weight", d)
        p += "mixer."
        yield from projection(p + "in_proj", 2 * inner, d, c["use_bias"])
        yield from convolution(p + "conv1d", inner, c)
        yield tensor(p + "x_proj.weight", [r + 2 * n, inner], gain=1.5)
        yield tensor(p + "dt_proj.weight", [inner, r], gain=0.5)
        yield tensor(p + "dt_proj.bias", [inner], **DT_BIAS)
        yield tensor(p + "A_log", [inner, n], **A_LOG)
        yield tensor(p + "D", [inner], scale=0.5, offset=1.0)
        yield from projection(p + "out_proj", d, inner, c["use_bias"])


def mamba2_tensors(c):
    d, n, heads = c["hidden_size"], c["state_size"], c["num_heads"]
    inner = heads * c["head_dim"]
    channels = inner + 2 * c["n_groups"] * n
    yield from ends(c, "backbone.embeddings.weight", "backbone.norm_f.weight")
    for i in range(c["num_hidden_layers"]):
        p = f"backbone.layers.{i}."
        yield norm(p + "norm.weight", d)
        p += "mixer."
        yield from projection(p + "in_proj", inner + channels + heads, d, c["use_bias"])
        yield from convolution(p + "conv1d", channels, c)
        yield tensor(p + "dt_bias", [heads], **DT_BIAS)
        yield tensor(p + "A_log", [heads], **A_LOG)
        yield tensor(p + "D", [heads], scale=0.5, offset=1.0)
        yield norm(p + "norm.weight", inner)
        yield from projection(p + "out_proj", d, inner, c["use_bias"])


def llama(**more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 3, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "attention_bias": False, "mlp_bias": False,
            "torch_dtype": "float32", **more}


def mamba(**more):
    c = {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "num_hidden_layers": 3, "expand": 2,
         "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "hidden_act": "silu",
         "residual_in_fp32": True, "torch_dtype": "float32", **more}
    return {**c, "intermediate_size": c["expand"] * c["hidden_size"]}


def falcon(**more):
    return mamba(**{"mixer_rms_eps": 1e-6, **more, "architectures": ["FalconMambaForCausalLM"],
                    "model_type": "falcon_mamba"})


def mamba2(**more):
    return {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "num_hidden_layers": 3, "expand": 2,
            "conv_kernel": 4, "n_groups": 1, "chunk_size": 64, "rms_norm": True, "norm_before_gate": False,
            "time_step_limit": [0.0, INF], "use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5,
            "hidden_act": "silu", "residual_in_fp32": True, "torch_dtype": "float32", **more}


GROUPS_NOTE = ("Mamba-2 with groups as its authors define it: gate, then RMS over each group. transformers 5.24 does the same; "
               "its older releases normalise over all groups at once, and every release ignores norm_before_gate.")
BEFORE_NOTE = ("norm_before_gate true as the Mamba-2 authors define it: RMS over each group, then the gate. "
               "Hugging Face ignores the key and always gates first.")
SPARSE = [0, 1, 62, 63, 64, 65, 126, 127, 128, 129, 150, -1]  # positions of a long case, -1: the last

# name: (config, tokens, note)
MODELS = {
    "llama_gqa": (llama(vocab_size=41, hidden_size=21, intermediate_size=37, num_attention_heads=3, num_key_value_heads=1,
                        head_dim=10, rope_theta=10000.0, tie_word_embeddings=False), 29, "Grouped queries, own head_dim."),
    "llama_tied": (llama(vocab_size=37, hidden_size=16, intermediate_size=23, num_attention_heads=2, num_key_value_heads=2,
                         rope_theta=500000.0, tie_word_embeddings=True), 23, "Tied head, no head_dim key."),
    "mamba_tied": (mamba(vocab_size=41, hidden_size=20, state_size=5, time_step_rank=3, tie_word_embeddings=True), 31, ""),
    "mamba_biases": (mamba(vocab_size=37, hidden_size=14, state_size=7, time_step_rank=5, expand=3, conv_kernel=3,
                           use_bias=True, use_conv_bias=False, tie_word_embeddings=False), 26,
                     "expand 3, conv_kernel 3, projections with biases, convolution without."),
    "mamba_long": (mamba(vocab_size=29, hidden_size=13, state_size=16, time_step_rank=1, tie_word_embeddings=False), 170, ""),
    "falcon_mamba": (falcon(vocab_size=41, hidden_size=18, state_size=6, time_step_rank=3, tie_word_embeddings=False), 27,
                     "dt, B and C normalised without weights."),
    "falcon_mamba_eps": (falcon(vocab_size=31, hidden_size=15, state_size=9, time_step_rank=2, mixer_rms_eps=0.05,
                                use_bias=True, tie_word_embeddings=True), 22, "mixer_rms_eps so large that it shows."),
    "mamba2_tied": (mamba2(vocab_size=41, hidden_size=21, num_heads=6, head_dim=7, state_size=9, tie_word_embeddings=True),
                    33, ""),
    "mamba2_limit": (mamba2(vocab_size=37, hidden_size=20, num_heads=5, head_dim=8, state_size=11, conv_kernel=3,
                            use_bias=True, use_conv_bias=False, time_step_limit=[0.05, 0.2], tie_word_embeddings=False), 28,
                     "Finite time_step_limit; projections with biases, convolution without. Hugging Face applies the limit "
                     "in its full-sequence form only, not when it decodes token by token."),
    "mamba2_long": (mamba2(vocab_size=29, hidden_size=15, num_heads=3, head_dim=10, state_size=13,
                           tie_word_embeddings=False), 193, ""),
    "mamba2_groups2": (mamba2(vocab_size=41, hidden_size=18, num_heads=4, head_dim=9, state_size=7, n_groups=2,
                              tie_word_embeddings=False), 30, GROUPS_NOTE),
    "mamba2_groups3": (mamba2(vocab_size=37, hidden_size=15, num_heads=6, head_dim=5, state_size=8, n_groups=3,
                              use_bias=True, tie_word_embeddings=True), 24, GROUPS_NOTE),
    "mamba2_norm_before_gate": (mamba2(vocab_size=37, hidden_size=18, num_heads=4, head_dim=9, state_size=7, n_groups=2,
                                       norm_before_gate=True, tie_word_embeddings=False), 25, BEFORE_NOTE),
    "mamba2_groups2_long": (mamba2(vocab_size=29, hidden_size=12, num_heads=4, head_dim=6, state_size=5, n_groups=2,
                                   tie_word_embeddings=True), 160, GROUPS_NOTE),
}
CLASSES = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
           "mamba": (transformers.MambaConfig, transformers.MambaForCausalLM),
           "falcon_mamba": (transformers.FalconMambaConfig, transformers.FalconMambaForCausalLM),
           "mamba2": (transformers.Mamba2Config, transformers.Mamba2ForCausalLM)}
TENSORS = {"llama": llama_tensors, "mamba": mamba_tensors, "falcon_mamba": mamba_tensors, "mamba2": mamba2_tensors}

# The layout of the authors' own checkpoints (mamba_ssm): its config, and what that means in Hugging Face's words.
AUTHORS_COMMON = {"rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 8}
AUTHORS_NOTE = (" Layout of mamba_ssm checkpoints; the embedding has vocab_size rounded up to pad_vocab_size_multiple rows, "
                "and logits are given for all of them.")
AUTHORS = {
    "mamba_authors": ({"d_model": 20, "n_layer": 3, "vocab_size": 35, "ssm_cfg": {}, **AUTHORS_COMMON},
                      mamba(vocab_size=40, hidden_size=20, state_size=16, time_step_rank=2, tie_word_embeddings=True), 27,
                      "Everything by default: d_state 16, d_conv 4, expand 2, dt_rank ceil(d_model / 16), tied."
                      + AUTHORS_NOTE),
    "mamba2_authors": ({"d_model": 18, "d_intermediate": 0, "n_layer": 3, "vocab_size": 35,
                        "ssm_cfg": {"layer": "Mamba2", "d_state": 7, "headdim": 9, "ngroups": 2}, "attn_layer_idx": [],
                        "attn_cfg": {}, **AUTHORS_COMMON, "tie_embeddings": False},
                       mamba2(vocab_size=40, hidden_size=18, num_heads=4, head_dim=9, state_size=7, n_groups=2,
                              tie_word_embeddings=False), 27, "Groups, untied." + AUTHORS_NOTE),
}


def hugging_face(c, weights, ids):
    """float32 logits of the whole sequence in one call."""
    make_config, make_model = CLASSES[c["model_type"]]
    model = make_model(make_config(**{k: v for k, v in c.items() if k not in ("architectures", "model_type")})).eval()
    state = {n: torch.from_numpy(v) for n, v in weights.items()}
    left = model.load_state_dict(state, strict=False)
    missing = [n for n in left.missing_keys if not (c["tie_word_embeddings"] and n == "lm_head.weight")]
    assert not missing and not left.unexpected_keys, (missing, left.unexpected_keys)
    model.tie_weights()
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


def own(c, weights, ids):
    w = {n: v.astype(np.float64) for n, v in weights.items()}
    if c["model_type"] == "llama":
        return reference.llama(w, c, ids)
    return reference.state_space(reference.Mamba2 if c["model_type"] == "mamba2" else reference.Mamba, w, c, ids)


def ways(c, weights, ids, authors):
    """(how, logits) of every implementation that defines this model, ours last; the first one is written."""
    kind = c["model_type"]
    if not c.get("norm_before_gate"):
        yield f"transformers {transformers.__version__}, float32", hugging_face(c, weights, ids)
    if kind in ("mamba", "mamba2"):
        how = {"mamba": "selective_scan_ref, float32", "mamba2": "ssd_minimal_discrete and rms_norm_ref, float64"}[kind]
        yield f"mamba_ssm's {how}", authors.logits(kind, weights, c, ids)
    yield "own float64 loop", own(c, weights, ids)


def number(x):
    return float(f"{x:.7g}")


def write(name, fields):
    """One key a line; one row a line where there are rows."""
    lines = []
    for key, value in fields.items():
        if key in ("tensors", "logits", "o"):
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f'{json.dumps(key)}: [\n  {rows}]')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def compared(results, name):
    """The first result, and a sentence on how far the others are from it."""
    (how, first), *others = results
    largest = {other: float(np.abs(value - first).max()) for other, value in others}
    assert max(largest.values()) < LIMIT, (name, largest)
    said = "; ".join(f"{other}: {worst:.1e}" for other, worst in largest.items())
    print(f"{name}: size {np.abs(first).max():.2f}; {said}", flush=True)
    return first, f"Made by {how}; largest difference to {said}."


def model_case(name, config, c, count, note, versions, authors):
    described = list(TENSORS[c["model_type"]](c))
    if config is not c:
        for t in described:
            t["name"] = t["name"].replace("backbone.embeddings.", "backbone.embedding.")
    weights = {t["name"].replace("backbone.embedding.", "backbone.embeddings."):
               fill(t["name"], t["shape"], t["scale"], t["offset"]) for t in described}
    ids = tokens(name, count, config["vocab_size"])
    logits, agreement = compared(list(ways(c, weights, ids, authors)), name)
    fields = {"config": config, "tensors": described, "token_ids": ids}
    if count > 100:
        fields["positions"] = SPARSE[:-1] + [count - 1]
        logits = logits[fields["positions"]]
    fields["logits"] = [[number(x) for x in row] for row in logits]
    write(name, {**fields, "made_with": versions, "note": f"{note} {agreement}".strip()})


def layer_case(name, kind, shapes, scales, note, versions, fla):
    """One layer's function: q, k, v [T, heads, size] and o, a row a token, heads one after the other."""
    described = [tensor(n, s, scale=scales[n]) for n, s in shapes.items()]
    values = [fill(t["name"], t["shape"], t["scale"], t["offset"]).astype(np.float64) for t in described]
    if kind == "linear_attention":
        q, k, v = (torch.from_numpy(x).float()[None] for x in values)
        naive, _ = fla(torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1, v, scale=1.0, normalize=True)
        results = [("own float64 quadratic form", reference.linear_attention(*values)),
                   ("flash-linear-attention's naive_recurrent_linear_attn, float32", naive[0].double().numpy())]
    else:
        results = [("own float64 quadratic form", reference.performer(*values)),
                   ("own float64 recurrent form", reference.performer_recurrent(*values))]
    o, agreement = compared(results, name)
    rows = [[number(x) for x in row] for row in o.reshape(len(o), -1)]
    write(name, {"function": kind, "tensors": described, "o": rows, "made_with": versions, "note": f"{note} {agreement}"})


LINEAR_NOTE = ("phi(x) = elu(x) + 1, not scaled; o_t = phi(q_t) S_t / (phi(q_t) . z_t + 1e-10).")
PERFORMER_NOTE = ("phi(x)_i = exp(w_i . x' - |x'|^2 / 2) / sqrt(features), x' = x / size^(1/4); queries relative to their own "
                  "largest exponent, keys to the largest of all features and tokens up to t; epsilon 1e-10.")


def layer_cases(versions, fla):
    qkv = {"q": [37, 3, 10], "k": [37, 3, 10], "v": [37, 3, 7]}
    layer_case("linear_attention", "linear_attention", qkv, {"q": 2.0, "k": 2.0, "v": 1.0}, LINEAR_NOTE, versions, fla)
    shapes = {"q": [35, 3, 10], "k": [35, 3, 10], "v": [35, 3, 10], "features": [21, 10]}
    layer_case("performer", "performer", shapes, {"q": 1.5, "k": 1.5, "v": 1.0, "features": 1.8}, PERFORMER_NOTE, versions, fla)
    layer_case("performer_far", "performer", {n: [s[0] - 6 if n != "features" else s[0], *s[1:]] for n, s in shapes.items()},
               {"q": 7.0, "k": 7.0, "v": 1.0, "features": 1.8},
               PERFORMER_NOTE + " Keys so large that the largest exponent rises by tens from token to token.", versions, fla)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="default: all")
    parser.add_argument("--mamba-ssm", type=Path, required=True, help="unpacked source distribution")
    parser.add_argument("--fla", type=Path, required=True, help="unzipped wheel of fla-core")
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__,
                "mamba_ssm": args.mamba_ssm.resolve().name.split("-")[-1],
                "fla_core": next(args.fla.glob("fla_core-*.dist-info")).name.split("-")[1].removesuffix(".dist")}
    spec = importlib.util.spec_from_file_location("naive", args.fla / "fla/ops/linear_attn/naive.py")
    naive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(naive)
    authors = Authors(args.mamba_ssm)
    wanted = lambda name: not args.cases or name in args.cases
    for name, (c, count, note) in MODELS.items():
        if wanted(name):
            model_case(name, c, c, count, note, versions, authors)
    for name, (config, c, count, note) in AUTHORS.items():
        if wanted(name):
            model_case(name, config, c, count, note, versions, authors)
    if not args.cases:
        layer_cases(versions, naive.naive_recurrent_linear_attn)


if __name__ == "__main__":
    main()
