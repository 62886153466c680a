"""Mamba (selective scan, Gu and Dao 2023) and Mamba-2 (SSD, Dao and Gu 2024) as mixers; no MLP goes with them.

Parameter names are Hugging Face's.  A_log, D and dt_bias stay fp32 in a bf16 model, as do the states.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from norm import RMSNorm
from scan import selective_scan

CONV_SIZE = 4


def exact(x):
    """At least fp32."""
    return x if x.dtype == torch.float64 else x.float()


def inverse_softplus_of_steps(count, low=1e-3, high=0.1):
    """Biases whose softplus is log-uniform between `low` and `high`."""
    dt = torch.exp(torch.rand(count) * (math.log(high) - math.log(low)) + math.log(low)).clamp(min=1e-4)
    return dt + torch.log(-torch.expm1(-dt))


class Convolution(nn.Module):
    """Causal depthwise convolution and SiLU; the last tap meets the current token."""

    def __init__(self, channels):
        super().__init__()
        bound = CONV_SIZE ** -0.5
        self.weight = nn.Parameter(torch.empty(channels, 1, CONV_SIZE).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(self, x, window):
        """x [B, T, D] and the three inputs before it: the result and the new window."""
        t = x.shape[1]
        padded = torch.cat((window.to(x.dtype), x), dim=1)
        y = sum(padded[:, i:i + t] * self.weight[:, 0, i] for i in range(CONV_SIZE)) + self.bias
        return F.silu(y), padded[:, t:].detach().to(window.dtype)


class Mamba(nn.Module):
    """State: h [D, N] and the convolution's window."""

    def __init__(self, config):
        super().__init__()
        d, inner, n = config.hidden_size, config.inner_size, config.state_size
        self.rank, self.inner, self.n = -(-d // 16), inner, n
        self.in_proj = nn.Linear(d, 2 * inner, bias=False)
        self.conv1d = Convolution(inner)
        self.x_proj = nn.Linear(inner, self.rank + 2 * n, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        nn.init.uniform_(self.dt_proj.weight, -self.rank ** -0.5, self.rank ** -0.5)
        self.dt_proj.bias.data = inverse_softplus_of_steps(inner)
        self.A_log = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d, bias=False)
        self.out_proj.weight.data /= config.num_layers ** 0.5

    def initial_state(self, batch, dtype=torch.float32):
        return (torch.zeros(batch, self.inner, self.n, dtype=dtype),
                torch.zeros(batch, CONV_SIZE - 1, self.inner, dtype=dtype))

    def parts(self, x, window):
        """x, gate, dt, A, B, C and the new window."""
        x, z = self.in_proj(x).chunk(2, -1)
        x, window = self.conv1d(x, window)
        low, b, c = self.x_proj(x).split([self.rank, self.n, self.n], -1)
        dt = F.softplus(exact(F.linear(low, self.dt_proj.weight)) + exact(self.dt_proj.bias))
        return x, z, dt, -self.A_log.exp(), exact(b), exact(c), window

    def finish(self, y, x, z):
        y = (y + self.D * exact(x)) * F.silu(exact(z))
        return self.out_proj(y.to(x.dtype))

    def forward(self, x, rotary, state):
        h, window = state
        x, z, dt, a, b, c, window = self.parts(x, window)
        y, h = selective_scan(exact(x), dt, a, b, c, h)
        return self.finish(y, x, z), (h, window)

    def step(self, x, rotary, state):
        """One token: h = exp(dt A) h + dt x B, y = h C."""
        h, window = state
        x, z, dt, a, b, c, window = self.parts(x, window)
        dt = dt[:, 0, :, None]
        h = (dt * a).exp() * h + dt * exact(x)[:, 0, :, None] * b
        return self.finish((h @ c.transpose(1, 2))[..., 0][:, None], x, z), (h, window)


class Mamba2(nn.Module):
    """One group, gate before the norm; state per head: h [P, N], and the convolution's window."""

    def __init__(self, config):
        super().__init__()
        d, inner, n = config.hidden_size, config.inner_size, config.state_size
        self.p, self.n, self.inner = config.ssm_head_dim, n, inner
        self.heads, self.chunk = inner // self.p, config.ssm_chunk
        self.in_proj = nn.Linear(d, 2 * inner + 2 * n + self.heads, bias=False)
        self.conv1d = Convolution(inner + 2 * n)
        self.dt_bias = nn.Parameter(inverse_softplus_of_steps(self.heads))
        self.A_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm = RMSNorm(inner, config.norm_eps)
        self.out_proj = nn.Linear(inner, d, bias=False)
        self.out_proj.weight.data /= config.num_layers ** 0.5

    def initial_state(self, batch, dtype=torch.float32):
        return (torch.zeros(batch, self.heads, self.p, self.n, dtype=dtype),
                torch.zeros(batch, CONV_SIZE - 1, self.inner + 2 * self.n, dtype=dtype))

    def parts(self, x, window):
        """x [B, T, H, P], gate, dt [B, T, H], A [H], B, C [B, T, N] and the new window."""
        z, x, dt = self.in_proj(x).split([self.inner, self.inner + 2 * self.n, self.heads], -1)
        x, window = self.conv1d(x, window)
        x, b, c = x.split([self.inner, self.n, self.n], -1)
        dt = F.softplus(exact(dt) + self.dt_bias)
        return x.unflatten(-1, (self.heads, self.p)), z, dt, -self.A_log.exp(), b, c, window

    def finish(self, y, x, z):
        y = (exact(y) + self.D[:, None] * exact(x)).flatten(2) * F.silu(exact(z))
        return self.out_proj(self.norm(y).to(x.dtype))

    def forward(self, x, rotary, state):
        """Parallel form: quadratic inside a chunk, states between chunks.  T must be a multiple of the chunk or below."""
        h, window = state
        x, z, dt, a, b, c, window = self.parts(x, window)
        rows, t = x.shape[:2]
        size = min(self.chunk, t)
        v = (exact(x) * dt[..., None]).to(x.dtype)
        v = v.view(rows, t // size, size, self.heads, self.p).transpose(2, 3)  # [R, K, H, L, P]
        b, c = (y.view(rows, t // size, size, self.n) for y in (b, c))
        log_decay = (dt * a).view(rows, t // size, size, self.heads).transpose(2, 3).cumsum(-1)  # [R, K, H, L]
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        between = (log_decay[..., :, None] - log_decay[..., None, :]).masked_fill(future, float("-inf")).exp()
        scores = ((c @ b.transpose(-1, -2))[:, :, None] * between).to(x.dtype)
        last = log_decay[..., -1:]
        added = exact((v * (last - log_decay).exp()[..., None].to(x.dtype)).transpose(-1, -2) @ b[:, :, None])  # [R, K, H, P, N]
        before, fade = [], last[..., None].exp()
        for k in range(t // size):
            before.append(h)
            h = fade[:, k] * h + added[:, k]
        before = torch.stack(before, 1).to(x.dtype)
        y = exact(scores @ v) + log_decay.exp()[..., None] * exact(c[:, :, None] @ before.transpose(-1, -2))
        y = y.transpose(2, 3).reshape(rows, t, self.heads, self.p)
        return self.finish(y, x, z), (h.detach(), window)

    def step(self, x, rotary, state):
        """One token: h = exp(dt A) h + dt x B^T, y = h C."""
        h, window = state
        x, z, dt, a, b, c, window = self.parts(x, window)
        dt = dt[:, 0, :, None, None]
        h = (dt * a[:, None, None]).exp() * h + dt * exact(x)[:, 0, :, :, None] * exact(b)[:, :, None]
        y = (h @ exact(c)[:, 0, None, :, None])[..., 0][:, None]
        return self.finish(y, x, z), (h, window)
