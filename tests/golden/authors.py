"""Mamba and Mamba-2 built from the reference functions in the authors' source distribution, in torch.

The functions are cut out of their files, because importing the packages needs CUDA or Triton.
"""

import ast
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange, repeat


def functions(path, *names):
    """The named top-level functions of a Python file, compiled on their own."""
    tree = ast.parse(Path(path).read_text())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    assert len(tree.body) == len(names), (path, names)
    space = {"torch": torch, "F": F, "math": math, "rearrange": rearrange, "repeat": repeat}
    exec(compile(tree, str(path), "exec"), space)
    return [space[n] for n in names]


class Authors:
    """`folder`: the unpacked mamba-ssm source distribution."""

    def __init__(self, folder):
        folder = Path(folder) / "mamba_ssm"
        self.scan, = functions(folder / "ops/selective_scan_interface.py", "selective_scan_ref")
        _, self.ssd = functions(folder / "modules/ssd_minimal.py", "segsum", "ssd_minimal_discrete")
        self.rms_norm, = functions(folder / "ops/triton/layernorm_gated.py", "rms_norm_ref")

    def convolve(self, x, w, p):
        taps = w[p + "conv1d.weight"]
        y = F.conv1d(x.t()[None], taps, w.get(p + "conv1d.bias"), padding=taps.shape[-1] - 1, groups=len(taps))
        return F.silu(y[0, :, :len(x)].t())

    def mamba(self, x, w, p, c):
        """selective_scan_ref works in float32 whatever it is given."""
        x, z = F.linear(x, w[p + "in_proj.weight"], w.get(p + "in_proj.bias")).chunk(2, -1)
        x = self.convolve(x, w, p)
        low, b, n = F.linear(x, w[p + "x_proj.weight"]).split([c["time_step_rank"], c["state_size"], c["state_size"]], -1)
        dt = F.linear(low, w[p + "dt_proj.weight"])
        y = self.scan(x.t()[None], dt.t()[None], -torch.exp(w[p + "A_log"]).float(), b.t()[None], n.t()[None],
                      w[p + "D"].float(), z.t()[None], w[p + "dt_proj.bias"], True)
        return F.linear(y[0].t().to(x.dtype), w[p + "out_proj.weight"], w.get(p + "out_proj.bias"))

    def mamba2(self, x, w, p, c):
        heads, groups, n, t = c["num_heads"], c["n_groups"], c["state_size"], len(x)
        inner = heads * c["head_dim"]
        z, x, dt = F.linear(x, w[p + "in_proj.weight"], w.get(p + "in_proj.bias")).split(
            [inner, inner + 2 * groups * n, heads], -1)
        x, b, k = self.convolve(x, w, p).split([inner, groups * n, groups * n], -1)
        dt = F.softplus(dt + w[p + "dt_bias"]).clamp(*c["time_step_limit"])
        a = -torch.exp(w[p + "A_log"])
        x = x.reshape(1, t, heads, -1)
        b, k = (y.reshape(1, t, groups, n).repeat_interleave(heads // groups, 2) for y in (b, k))
        y, _ = self.ssd(x * dt[None, :, :, None], a * dt[None], b, k, t)
        y = (y + w[p + "D"][:, None] * x).reshape(t, inner)
        y = self.rms_norm(y, w[p + "norm.weight"], None, z, c["layer_norm_epsilon"], inner // groups,
                          c.get("norm_before_gate", False), upcast=False)
        return F.linear(y, w[p + "out_proj.weight"], w.get(p + "out_proj.bias"))

    def logits(self, kind, w, c, ids):
        """`kind`: mamba or mamba2; float64 apart from the selective scan and the norms' rounding of weights."""
        w = {name: torch.from_numpy(value).double() for name, value in w.items()}
        eps, x = c["layer_norm_epsilon"], w["backbone.embeddings.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            y = self.rms_norm(x, w[f"backbone.layers.{i}.norm.weight"], None, eps=eps, upcast=False)
            x = x + getattr(self, kind)(y, w, f"backbone.layers.{i}.mixer.", c)
        x = self.rms_norm(x, w["backbone.norm_f.weight"], None, eps=eps, upcast=False)
        return (x @ w["backbone.embeddings.weight" if c["tie_word_embeddings"] else "lm_head.weight"].t()).numpy()
