"""The models as plain float64 loops over tokens, in numpy; `w` maps tensor names to float64 arrays.

Every function returns logits [T, V].  Names are Hugging Face's; `generate.py` renames where a layout differs.
"""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def rms(x, eps, weight=1.0):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)


class Convolution:
    """Causal depthwise convolution, one token at a time; the last tap meets the current token."""

    def __init__(self, w, name):
        self.taps = w[name + ".weight"][:, 0, :]
        self.bias = w.get(name + ".bias", 0.0)
        self.window = np.zeros_like(self.taps)

    def step(self, x):
        self.window = np.concatenate((self.window[:, 1:], x[:, None]), 1)
        return (self.window * self.taps).sum(1) + self.bias


def llama(w, c, ids):
    heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
    size = c.get("head_dim") or c["hidden_size"] // heads
    frequency = c["rope_theta"] ** (-np.arange(size // 2) * 2.0 / size)

    def rotate(x, position):
        cos, sin = np.cos(position * frequency), np.sin(position * frequency)
        a, b = x[:, :size // 2], x[:, size // 2:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), 1)

    caches = [([], []) for _ in range(c["num_hidden_layers"])]
    out = []
    for position, token in enumerate(ids):
        x = w["model.embed_tokens.weight"][token]
        for i, (keys, values) in enumerate(caches):
            p = f"model.layers.{i}."
            y = rms(x, c["rms_norm_eps"], w[p + "input_layernorm.weight"])
            q = rotate(linear(w, p + "self_attn.q_proj", y).reshape(heads, size), position)
            keys.append(rotate(linear(w, p + "self_attn.k_proj", y).reshape(groups, size), position))
            values.append(linear(w, p + "self_attn.v_proj", y).reshape(groups, size))
            o = []
            for h in range(heads):
                g = h * groups // heads
                score = np.array([q[h] @ k[g] for k in keys]) / np.sqrt(size)
                p_ = np.exp(score - score.max())
                o.append(sum(a * v[g] for a, v in zip(p_ / p_.sum(), values)))
            x = x + linear(w, p + "self_attn.o_proj", np.concatenate(o))
            y = rms(x, c["rms_norm_eps"], w[p + "post_attention_layernorm.weight"])
            y = silu(linear(w, p + "mlp.gate_proj", y)) * linear(w, p + "mlp.up_proj", y)
            x = x + linear(w, p + "mlp.down_proj", y)
        x = rms(x, c["rms_norm_eps"], w["model.norm.weight"])
        out.append(x @ w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T)
    return np.array(out)


class Mamba:
    """One layer; with `mixer_rms_eps` in the config (Falcon-Mamba) dt, B and C are normalised without weights."""

    def __init__(self, w, prefix, c):
        self.w, self.p, self.c = w, prefix, c
        self.a = -np.exp(w[prefix + "A_log"])
        self.conv = Convolution(w, prefix + "conv1d")
        self.h = np.zeros_like(self.a)

    def step(self, x):
        w, p, n = self.w, self.p, self.c["state_size"]
        x, z = np.split(linear(w, p + "in_proj", x), 2)
        x = silu(self.conv.step(x))
        low, b, c = np.split(linear(w, p + "x_proj", x), [self.c["time_step_rank"], self.c["time_step_rank"] + n])
        if "mixer_rms_eps" in self.c:
            low, b, c = (rms(y, self.c["mixer_rms_eps"]) for y in (low, b, c))
        dt = softplus(linear(w, p + "dt_proj", low))[:, None]
        self.h = np.exp(dt * self.a) * self.h + dt * b * x[:, None]
        return linear(w, p + "out_proj", (self.h @ c + w[p + "D"] * x) * silu(z))


class Mamba2:
    """One layer as its authors define it: the gated norm is taken per group."""

    def __init__(self, w, prefix, c):
        self.w, self.p, self.c = w, prefix, c
        self.conv = Convolution(w, prefix + "conv1d")
        self.h = np.zeros((c["num_heads"], c["head_dim"], c["state_size"]))

    def step(self, x):
        w, p, k = self.w, self.p, self.c
        heads, groups, n = k["num_heads"], k["n_groups"], k["state_size"]
        inner = heads * k["head_dim"]
        z, x, dt = np.split(linear(w, p + "in_proj", x), [inner, 2 * inner + 2 * groups * n])
        x, b, c = np.split(silu(self.conv.step(x)), [inner, inner + groups * n])
        x = x.reshape(heads, -1)
        b, c = (np.repeat(y.reshape(groups, n), heads // groups, 0) for y in (b, c))
        dt = np.clip(softplus(dt + w[p + "dt_bias"]), *k["time_step_limit"])[:, None, None]
        decay = np.exp(-np.exp(w[p + "A_log"])[:, None, None] * dt)
        self.h = decay * self.h + dt * x[:, :, None] * b[:, None, :]
        y = ((self.h * c[:, None, :]).sum(-1) + w[p + "D"][:, None] * x).reshape(-1)
        if not k.get("norm_before_gate", False):
            y = y * silu(z)
        y = rms(y.reshape(groups, -1), k["layer_norm_epsilon"]).reshape(-1) * w[p + "norm.weight"]
        if k.get("norm_before_gate", False):
            y = y * silu(z)
        return linear(w, p + "out_proj", y)


def state_space(layer, w, c, ids):
    """Mamba, Falcon-Mamba and Mamba-2: no MLP, pre-norm, residual."""
    mixers = [layer(w, f"backbone.layers.{i}.mixer.", c) for i in range(c["num_hidden_layers"])]
    out = []
    for token in ids:
        x = w["backbone.embeddings.weight"][token]
        for i, mixer in enumerate(mixers):
            x = x + mixer.step(rms(x, c["layer_norm_epsilon"], w[f"backbone.layers.{i}.norm.weight"]))
        x = rms(x, c["layer_norm_epsilon"], w["backbone.norm_f.weight"])
        out.append(x @ w["backbone.embeddings.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T)
    return np.array(out)


EPSILON = 1e-10


def linear_attention(q, k, v):
    """phi(x) = elu(x) + 1; quadratic form, [T, H, *]."""
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    scores = np.einsum("thd,shd->hts", q, k) * np.tri(len(q))
    return np.einsum("hts,shd->thd", scores, v) / (scores.sum(-1).T[..., None] + EPSILON)


def exponents(x, features):
    x = x / x.shape[-1] ** 0.25
    return x @ features.T - (x * x).sum(-1, keepdims=True) / 2


def performer(q, k, v, features):
    """FAVOR+, quadratic form.  Queries relative to their own largest exponent, keys to the largest up to t."""
    q, k = exponents(q, features), exponents(k, features)
    q = np.exp(q - q.max(-1, keepdims=True)) / np.sqrt(len(features))
    top = np.maximum.accumulate(k.max(-1), 0)  # [T, H]
    out = np.zeros_like(v)
    for t in range(len(v)):
        keys = np.exp(k[:t + 1] - top[t][None, :, None]) / np.sqrt(len(features))
        weight = np.einsum("hm,shm->sh", q[t], keys)
        out[t] = np.einsum("sh,shd->hd", weight, v[:t + 1]) / (weight.sum(0)[:, None] + EPSILON)
    return out


def performer_recurrent(q, k, v, features):
    """The same with a constant state: S and z are scaled down when the largest exponent rises."""
    q, k = exponents(q, features), exponents(k, features)
    heads, size = q.shape[1], v.shape[-1]
    total, norm = np.zeros((heads, len(features), size)), np.zeros((heads, len(features)))
    top = np.full(heads, -np.inf)
    out = []
    for qt, kt, vt in zip(q, k, v):
        before, top = top, np.maximum(top, kt.max(-1))
        qt = np.exp(qt - qt.max(-1, keepdims=True)) / np.sqrt(len(features))
        kt = np.exp(kt - top[:, None]) / np.sqrt(len(features))
        fade = np.exp(before - top)
        total = total * fade[:, None, None] + kt[:, :, None] * vt[:, None, :]
        norm = norm * fade[:, None] + kt
        out.append(np.einsum("hm,hmd->hd", qt, total) / ((qt * norm).sum(-1)[:, None] + EPSILON))
    return np.array(out)
