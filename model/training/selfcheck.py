"""The parallel and the recurrent form of every mixer must agree, and a state carried over must change nothing.

Weights are double; the parallel form computes feature maps and softmax in float, hence the limit of 1e-5.

    python selfcheck.py
"""

import torch

from model import Config, Decoder


def check(name, config, length=256):
    torch.manual_seed(0)
    model = Decoder(config).double().eval()
    ids = torch.randint(0, config.vocab_size, (2, length))
    with torch.no_grad():
        whole, _ = model(ids, model.initial_state(2, torch.float64))
        states, steps = model.initial_state(2, torch.float64), []
        for t in range(length):
            logits, states = model.step(ids[:, t], states, t)
            steps.append(logits)
        worst = (torch.stack(steps, 1) - whole).abs().max().item()
        if config.mixer == "linear":
            first, middle = model(ids[:, :length // 2], model.initial_state(2, torch.float64))
            second, _ = model(ids[:, length // 2:], middle)
            worst = max(worst, (torch.cat((first, second), 1) - whole).abs().max().item())
    print(f"{name}: largest difference {worst:.1e} on logits of size {whole.abs().max().item():.2f}")
    assert worst < 1e-5, name


if __name__ == "__main__":
    torch.set_num_threads(1)
    small = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=2, chunk=64)
    check("softmax", Config(mixer="softmax", **small))
    for conv in (False, True):
        for gate in (False, True):
            check(f"linear conv={conv} gate={gate}", Config(mixer="linear", conv=conv, gate=gate, **small))
