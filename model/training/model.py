"""The twins: one decoder, several ways of mixing along the sequence.

`softmax` is an ordinary Llama block (RoPE, causal softmax).  `linear` is causal linear attention with the
feature map elu(x) + 1: every head keeps S = sum phi(k) v^T and z = sum phi(k), plain sums without decay, and answers
phi(q)^T S / (phi(q)^T z).  Two optional parts give it a sense of order and keep its output in range: a width-4 causal
depthwise convolution on q, k and v, and an output gate.  Without both it is the plain layer of the textbook.
`performer` is that layer with FAVOR+ in place of elu + 1: positive random features of the softmax kernel.
`mamba` and `mamba2` (mamba.py) are layers of their own without an MLP.

`forward` is the parallel form (training: chunks of the sequence, states between them); `step` is the recurrent form
(one token, constant state).  `selfcheck.py` holds them against each other.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from mamba import Mamba, Mamba2
from norm import RMSNorm

CONV_SIZE = 4
DENOMINATOR_EPS = 1e-10


@dataclass
class Config:
    """Shape of a decoder.  `conv` and `gate` only matter to the linear mixers; intermediate_size 0: no MLP."""

    mixer: str = "softmax"  # softmax | linear | performer | mamba | mamba2
    conv: bool = True
    gate: bool = True
    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 512
    num_layers: int = 6
    num_heads: int = 3
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    chunk: int = 128  # of the parallel form of linear attention
    num_features: int = 128  # performer
    state_size: int = 16  # mamba and mamba2, as the next
    expand: int = 2
    ssm_head_dim: int = 64  # mamba2, as the next
    ssm_chunk: int = 64

    @property
    def head_dim(self):
        return self.hidden_size // self.num_heads

    @property
    def inner_size(self):
        return self.expand * self.hidden_size

    def to_dict(self):
        return asdict(self)


def rotary_tables(config, positions):
    """cos and sin for the rotate-half convention, [T, head_dim]."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = (positions.double()[:, None] * frequency[None, :]).repeat(1, 2)
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class SoftmaxAttention(nn.Module):
    """Causal softmax attention with rotary positions."""

    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.config = config
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))

    def heads(self, x):
        b, t, _ = x.shape
        return x.view(b, t, self.config.num_heads, self.config.head_dim).transpose(1, 2)

    def forward(self, x, rotary, state=None):
        cos, sin = (table.to(x.dtype) for table in rotary)
        q = rotate(self.heads(self.q_proj(x)), cos, sin)
        k = rotate(self.heads(self.k_proj(x)), cos, sin)
        v = self.heads(self.v_proj(x))
        if x.shape[1] > 1024:  # measuring at great length: no T x T matrix
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o_proj(o.transpose(1, 2).flatten(2)), None
        # Written out: on a CPU, compiled, twice as fast for short windows as scaled_dot_product_attention.
        scores = (q * self.config.head_dim ** -0.5) @ k.transpose(-1, -2)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        o = scores.float().masked_fill(future, float("-inf")).softmax(-1).to(x.dtype) @ v
        return self.o_proj(o.transpose(1, 2).flatten(2)), None

    def initial_state(self, batch, dtype):
        return None

    def step(self, x, rotary, state):
        """One token; the state is the growing cache of keys and values."""
        cos, sin = rotary
        q = rotate(self.heads(self.q_proj(x)), cos, sin)
        k = rotate(self.heads(self.k_proj(x)), cos, sin)
        v = self.heads(self.v_proj(x))
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        scores = (q @ k.transpose(-1, -2)) * self.config.head_dim ** -0.5
        o = scores.softmax(-1) @ v
        return self.o_proj(o.transpose(1, 2).flatten(2)), (k, v)


def phi(x):
    return F.elu(x) + 1


class LinearAttention(nn.Module):
    """Causal linear attention; state per head: S [d, d], z [d], and the last three inputs of each convolution."""

    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.config = config
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))
        if config.conv:
            # Kept as [3, D, taps] for speed; exported as three [D, 1, taps] tensors.  The last tap meets the current token.
            self.conv = nn.Parameter(torch.empty(3, d, CONV_SIZE).uniform_(-0.5, 0.5))
        if config.gate:
            self.g_proj = nn.Linear(d, d, bias=False)
        self.norm = RMSNorm(config.head_dim, config.norm_eps)

    def initial_state(self, batch, dtype=torch.float32):
        c = self.config
        return (torch.zeros(batch, c.num_heads, c.head_dim, c.head_dim, dtype=dtype),
                torch.zeros(batch, c.num_heads, c.head_dim, dtype=dtype),
                torch.zeros(batch, 3, CONV_SIZE - 1, c.hidden_size, dtype=dtype))

    def project(self, x, window):
        """q, k, v as [3, B, H, T, d] before the feature map, and the new convolution window."""
        c = self.config
        b, t, _ = x.shape
        qkv = torch.stack((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=1)
        if c.conv:
            padded = torch.cat((window.to(x.dtype), qkv), dim=2)
            window = padded[:, :, t:].detach().to(window.dtype)
            taps = self.conv[:, None]  # [3, 1, D, taps]
            qkv = sum(padded[:, :, i:i + t] * taps[..., i] for i in range(CONV_SIZE))
            qkv = F.silu(qkv)
        return qkv.view(b, 3, t, c.num_heads, c.head_dim).permute(1, 0, 3, 2, 4), window

    def finish(self, o, x):
        """Norm per head, gate, output projection."""
        o = self.norm(o).transpose(1, 2).flatten(2).to(x.dtype)
        if self.config.gate:
            o = o * F.silu(self.g_proj(x))
        return self.o_proj(o)

    def forward(self, x, rotary, state):
        """Parallel form: quadratic inside a chunk, states between chunks.  T must be a multiple of the chunk or below."""
        total, norm, window = state
        (q, k, v), window = self.project(x, window)
        q, k = phi(q.float()).to(x.dtype), phi(k.float()).to(x.dtype)
        b, h, t, d = q.shape
        size = min(self.config.chunk, t)
        q, k, v = (y.reshape(b, h, t // size, size, d) for y in (q, k, v))
        scores = (q @ k.transpose(-1, -2)).tril()
        kv = (k.transpose(-1, -2) @ v).to(total.dtype)
        ks = k.sum(-2, dtype=total.dtype)
        totals = total[:, :, None] + kv.cumsum(2)
        norms = norm[:, :, None] + ks.cumsum(2)
        before = torch.cat((total[:, :, None], totals[:, :, :-1]), 2).to(x.dtype)
        norm_before = torch.cat((norm[:, :, None], norms[:, :, :-1]), 2)
        numerator = scores @ v + q @ before
        denominator = scores.sum(-1, dtype=total.dtype) + (q * norm_before[..., None, :]).sum(-1)
        o = (numerator / (denominator[..., None] + DENOMINATOR_EPS)).view(b, h, t, d)
        return self.finish(o, x), (totals[:, :, -1].detach(), norms[:, :, -1].detach(), window)

    def step(self, x, rotary, state):
        """Recurrent form, one token: S += phi(k) v^T, z += phi(k), o = phi(q)^T S / (phi(q)^T z)."""
        total, norm, window = state
        (q, k, v), window = self.project(x, window)
        q, k = phi(q), phi(k)
        total = total + k.transpose(-1, -2) @ v
        norm = norm + k[:, :, 0]
        o = (q @ total) / ((q * norm[:, :, None]).sum(-1, keepdim=True) + DENOMINATOR_EPS)
        return self.finish(o, x), (total, norm, window)


def orthogonal_features(count, size):
    """Rows of blockwise orthogonal Gaussian matrices: orthogonal within a block, norms as of Gaussian vectors."""
    blocks = [torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0].t() for _ in range(-(-count // size))]
    return (torch.cat(blocks)[:count] * torch.randn(count, size, dtype=torch.float64).norm(dim=1)[:, None]).float()


class PerformerAttention(LinearAttention):
    """Linear attention with FAVOR+ (Choromanski et al. 2021) as the feature map.

    phi(x)_i = exp(w_i x' - |x'|^2 / 2) / sqrt(m) with x' = x / d^(1/4).  Exponents are large, so queries are taken
    relative to their own largest exponent and keys relative to the largest seen so far; both cancel, but for the
    epsilon.  State per head: S [m, d] and z [m], both relative to exp(top); `top`, minus infinity when nothing was
    read; and the convolution windows.
    """

    def __init__(self, config):
        super().__init__(config)
        # A buffer, not a parameter: not trained, and float32 whatever the weights are.
        self.register_buffer("features", orthogonal_features(config.num_features, config.head_dim))

    def initial_state(self, batch, dtype=torch.float32):
        c = self.config
        return (torch.zeros(batch, c.num_heads, c.num_features, c.head_dim, dtype=dtype),
                torch.zeros(batch, c.num_heads, c.num_features, dtype=dtype),
                torch.full((batch, c.num_heads), float("-inf"), dtype=dtype),
                torch.zeros(batch, 3, CONV_SIZE - 1, c.hidden_size, dtype=dtype))

    def exponents(self, x):
        """[..., d] to [..., m], in the precision of the features."""
        x = x.to(self.features.dtype) * self.config.head_dim ** -0.25
        return x @ self.features.t() - x.square().sum(-1, keepdim=True) / 2

    def forward(self, x, rotary, state):
        """Parallel form: chunk by chunk, each relative to the largest exponent up to its end."""
        total, norm, top, window = state
        (q, k, v), window = self.project(x, window)
        q, k = self.exponents(q), self.exponents(k)
        q = q - q.detach().amax(-1, keepdim=True)
        largest = k.detach().amax(-1)  # [B, H, T]
        share = self.config.num_features ** -0.5
        size, out = min(self.config.chunk, x.shape[1]), []
        for at in range(0, x.shape[1], size):
            here = slice(at, at + size)
            running = torch.maximum(largest[:, :, here].cummax(-1).values, top[..., None])
            before, top = top, running[..., -1]
            fade = (before - top).exp()
            total, norm = total * fade[..., None, None], norm * fade[..., None]
            fq = q[:, :, here].exp() * share
            fk = (k[:, :, here] - top[..., None, None]).exp() * share
            half_q, half_k, half_v = fq.to(x.dtype), fk.to(x.dtype), v[:, :, here]
            scores = (half_q @ half_k.transpose(-1, -2)).tril()
            numerator = scores @ half_v + half_q @ total.to(x.dtype)
            denominator = scores.sum(-1, dtype=total.dtype) + (fq * norm[..., None, :]).sum(-1)
            epsilon = DENOMINATOR_EPS * (running - top[..., None]).exp()
            out.append(numerator / (denominator + epsilon)[..., None])
            total = total + (half_k.transpose(-1, -2) @ half_v).to(total.dtype)
            norm = norm + fk.sum(-2)
        return self.finish(torch.cat(out, 2), x), (total.detach(), norm.detach(), top, window)

    def step(self, x, rotary, state):
        """Recurrent form, one token: when `top` rises, S and z are scaled down to it."""
        total, norm, top, window = state
        (q, k, v), window = self.project(x, window)
        q, k = self.exponents(q), self.exponents(k)
        before, top = top, torch.maximum(top, k[:, :, 0].amax(-1))
        share, fade = self.config.num_features ** -0.5, (before - top).exp()
        q = (q - q.amax(-1, keepdim=True)).exp() * share
        k = (k - top[..., None, None]).exp() * share
        total = total * fade[..., None, None] + k.transpose(-1, -2) @ v
        norm = norm * fade[..., None] + k[:, :, 0]
        o = (q @ total) / ((q * norm[:, :, None]).sum(-1, keepdim=True) + DENOMINATOR_EPS)
        return self.finish(o, x), (total, norm, top, window)


class SwiGLU(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, m = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = nn.Linear(d, m, bias=False), nn.Linear(d, m, bias=False)
        self.down_proj = nn.Linear(m, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


MIXERS = {"softmax": SoftmaxAttention, "linear": LinearAttention, "performer": PerformerAttention,
          "mamba": Mamba, "mamba2": Mamba2}
SSM = ("mamba", "mamba2")
FLOAT32 = (".features", ".A_log", ".D", ".dt_bias")  # what stays fp32 in a bf16 model


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attn = MIXERS[config.mixer](config)
        self.mlp = None
        if config.intermediate_size:
            self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
            self.mlp = SwiGLU(config)

    def run(self, mix, x, rotary, state):
        if self.mlp is None:  # x is the fp32 residual
            y, state = mix(self.attn_norm(x).to(self.attn_norm.weight.dtype), rotary, state)
            return x + y, state
        y, state = mix(self.attn_norm(x), rotary, state)
        x = x + y
        return x + self.mlp(self.mlp_norm(x)), state

    def forward(self, x, rotary, state):
        return self.run(self.attn, x, rotary, state)

    def step(self, x, rotary, state):
        return self.run(self.attn.step, x, rotary, state)


class Decoder(nn.Module):
    """Embedding, pre-norm blocks, final norm, tied head."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and (config.mixer not in SSM or name == "embeddings.weight"):
                scale = (2 * config.num_layers) ** -0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(parameter, 0, 0.02 * scale)

    def lower(self):
        """Weights to bf16, but for those that stay fp32."""
        for name, parameter in self.named_parameters():
            if not name.endswith(FLOAT32):
                parameter.data = parameter.data.bfloat16()

    def initial_state(self, batch, dtype=torch.float32):
        return [layer.attn.initial_state(batch, dtype) for layer in self.layers]

    def rotary(self, start, length):
        return rotary_tables(self.config, torch.arange(start, start + length))

    def embed(self, ids):
        """The residual stream of Mamba is fp32 at least, that of the others as wide as the weights."""
        x = self.embeddings(ids)
        return x.float() if self.config.mixer in SSM and x.dtype == torch.bfloat16 else x

    def head(self, x):
        return self.norm(x).to(self.embeddings.weight.dtype) @ self.embeddings.weight.t()

    def forward(self, ids, states=None, rotary=None):
        """Logits [B, T, V] and the states after the last token (softmax: none; it starts anew each call)."""
        states = states or self.initial_state(ids.shape[0])
        rotary = rotary or (self.rotary(0, ids.shape[1]) if self.config.mixer == "softmax" else None)
        x = self.embed(ids)
        after = []
        for layer, state in zip(self.layers, states):
            x, state = layer(x, rotary, state)
            after.append(state)
        return self.head(x), after

    @torch.no_grad()
    def step(self, ids, states, position):
        """Logits [B, V] for one token per row, and the new states."""
        rotary = self.rotary(position, 1)
        if self.config.mixer == "softmax":
            rotary = tuple(table.to(self.embeddings.weight.dtype) for table in rotary)
        x = self.embed(ids[:, None])
        after = []
        for layer, state in zip(self.layers, states):
            x, state = layer.step(x, rotary, state)
            after.append(state)
        return self.head(x)[:, 0], after
