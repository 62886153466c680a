"""The selective scan as an operator with a gradient: scan.cpp where a C++ compiler is at hand, else torch, token by token."""

import functools
from pathlib import Path

import torch

CHUNK = 64  # tokens between two kept states


@functools.cache
def compiled(state):
    """The C++ module for this state size, or None."""
    from torch.utils.cpp_extension import load_inline
    try:
        return load_inline(f"selective_scan_{state}", Path(__file__).with_name("scan.cpp").read_text(),
                           functions=["Forward", "Backward"],
                           extra_cflags=["-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512",
                                         f"-DSCAN_STATE={state}", f"-DSCAN_CHUNK={CHUNK}"])
    except (OSError, RuntimeError) as error:
        print(f"selective scan: no C++ extension ({str(error).splitlines()[0]}); slow torch form", flush=True)
        return None


def scan_by_token(x, dt, a, b, c, start):
    """x, dt [R, T, D], a [D, N], b, c [R, T, N], start [R, D, N]: y [R, T, D] and the last state; any precision."""
    h, out = start, []
    decay, inputs = torch.exp(dt[..., None] * a), (dt * x)[..., None] * b[:, :, None]
    for t in range(x.shape[1]):
        h = decay[:, t] * h + inputs[:, t]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1), h


@torch.library.custom_op("weir::selective_scan", mutates_args=())
def kept_scan(x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor,
              start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(compiled(a.shape[1]).Forward(*(v.contiguous() for v in (x, dt, a, b, c, start))))


@kept_scan.register_fake
def _(x, dt, a, b, c, start):
    chunks = -(-x.shape[1] // CHUNK)
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(x.shape[0], chunks + 1, *a.shape)


@torch.library.custom_op("weir::selective_scan_backward", mutates_args=())
def kept_scan_backward(dy: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor,
                       states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(compiled(a.shape[1]).Backward(*(v.contiguous() for v in (dy, x, dt, a, b, c, states))))


@kept_scan_backward.register_fake
def _(dy, x, dt, a, b, c, states):
    return tuple(torch.empty_like(v, memory_format=torch.contiguous_format) for v in (x, dt, a, b, c))


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:5], output[1])


def pull_back(ctx, dy, _):
    return *kept_scan_backward(dy, *ctx.saved_tensors), None


kept_scan.register_autograd(pull_back, setup_context=keep)


def selective_scan(x, dt, a, b, c, start):
    """y and the last state, which carries no gradient."""
    if x.dtype == torch.float32 and compiled(a.shape[1]):
        y, states = kept_scan(x, dt, a, b, c, start)
        return y, states[:, -1].detach()
    y, last = scan_by_token(x, dt, a, b, c, start)
    return y, last.detach()
