"""The parallel and the recurrent form of every mixer must agree, and a state carried over must change nothing.

Weights are double; the parallel form computes feature maps and softmax in float, hence the limit of 1e-5.

    python selfcheck.py
"""

import torch

from model import Config, Decoder
from scan import compiled, selective_scan


def check(name, config, length=256, scale=1):
    torch.manual_seed(0)
    model = Decoder(config).double().eval()
    if scale != 1:
        for layer in model.layers:
            for part in (layer.attn.q_proj, layer.attn.k_proj):
                part.weight.data *= scale
    ids = torch.randint(0, config.vocab_size, (2, length))
    with torch.no_grad():
        whole, _ = model(ids, model.initial_state(2, torch.float64))
        states, steps = model.initial_state(2, torch.float64), []
        for t in range(length):
            logits, states = model.step(ids[:, t], states, t)
            steps.append(logits)
        worst = (torch.stack(steps, 1) - whole).abs().max().item()
        if config.mixer != "softmax":
            first, middle = model(ids[:, :length // 2], model.initial_state(2, torch.float64))
            second, _ = model(ids[:, length // 2:], middle)
            worst = max(worst, (torch.cat((first, second), 1) - whole).abs().max().item())
    print(f"{name}: largest difference {worst:.1e} on logits of size {whole.abs().max().item():.2f}")
    assert worst < 1e-5, name


def check_scan():
    """The C++ scan and its gradients, in fp32, against torch and autograd in double."""
    torch.manual_seed(0)
    rows, length, inner, n = 2, 150, 5, 16
    x, b, c = torch.randn(rows, length, inner), torch.randn(rows, length, n), torch.randn(rows, length, n)
    dt, a, start = torch.rand(rows, length, inner), -8 * torch.rand(inner, n), torch.randn(rows, inner, n)
    weight = torch.randn(rows, length, inner)
    results = []
    for kind in (torch.float32, torch.float64):  # double goes token by token
        inputs = [v.to(kind).requires_grad_() for v in (x, dt, a, b, c)]
        y, last = selective_scan(*inputs, start.to(kind))
        results.append([y, last, *torch.autograd.grad((y * weight.to(kind)).sum(), inputs)])
    worst = max(((p - q).abs().max() / q.abs().max()).item() for p, q in zip(*results))
    print(f"scan in C++: {compiled(n) is not None}; largest relative difference of values and gradients {worst:.1e}")
    assert worst < 1e-5


if __name__ == "__main__":
    torch.set_num_threads(1)
    small = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=2, chunk=64)
    check("softmax", Config(mixer="softmax", **small))
    for conv in (False, True):
        for gate in (False, True):
            check(f"linear conv={conv} gate={gate}", Config(mixer="linear", conv=conv, gate=gate, **small))
            for scale in (1, 40):  # weights so large that the exponents of neighbours lie tens apart
                check(f"performer conv={conv} gate={gate} scale={scale}",
                      Config(mixer="performer", conv=conv, gate=gate, num_features=40, **small), scale=scale)
    ssm = {**small, "intermediate_size": 0, "ssm_head_dim": 16, "ssm_chunk": 64}
    check_scan()
    check("mamba", Config(mixer="mamba", state_size=16, **ssm))
    check("mamba2", Config(mixer="mamba2", state_size=24, **ssm))
