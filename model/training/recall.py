"""Train a small decoder on associative recall and export it as a Hugging Face folder without a tokenizer.

    python model/training/recall.py --mixer linear --out build/recall/linear

A problem is k1 v1 ... kN vN, then the same keys in another order, each with its value behind it: multi-query associative
recall (Arora et al. 2023).  Keys are ids 1 to 511, each at most once, values ids 512 to 1,023; only the values behind
the queries count.  N is 4 to 256, a power of two drawn anew at each step; the largest grows over the first half of a
run.  Every mixer sees the same problems in the same order.  Weights stay fp32 in training and are exported as bf16.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import export
from model import MIXERS, SSM, Config, Decoder
from optim import Optimizer
from train import rate, save

KEYS, VOCABULARY = 512, 1024
SIZES = (4, 8, 16, 32, 64, 128, 256)  # pairs


def problems(rows, pairs, generator):
    """Ids [rows, 4 * pairs]."""
    keys = torch.rand(rows, KEYS - 1, generator=generator).argsort(1)[:, :pairs] + 1
    values = torch.randint(KEYS, VOCABULARY, (rows, pairs), generator=generator)
    order = torch.rand(rows, pairs, generator=generator).argsort(1)
    first = torch.stack((keys, values), 2).flatten(1)
    then = torch.stack((keys.gather(1, order), values.gather(1, order)), 2).flatten(1)
    return torch.cat((first, then), 1)


def config_of(args):
    """0.16 M parameters (156,000 to 169,000), two fifths of them the embedding."""
    ssm = args.mixer in SSM
    gated = args.mixer in ("linear", "performer") and not args.no_gate
    return Config(mixer=args.mixer, conv=not args.no_conv, gate=not args.no_gate, vocab_size=VOCABULARY, hidden_size=64,
                  intermediate_size=0 if ssm else 128 if gated else 149, num_layers=3 if ssm else 2, num_heads=1,
                  num_features=128, state_size=64 if args.mixer == "mamba2" else 16)


def forget_nothing(model):
    """Mamba-2's decay exp(dt * A) becomes 1: A_log is a constant of -20 and no longer trained."""
    for layer in model.layers:
        decay = layer.attn.A_log.detach()
        del layer.attn.A_log
        layer.attn.register_buffer("A_log", torch.full_like(decay, -20.0))


def logits_of(model, ids, pairs):
    """Logits [rows, pairs, V] at the queries, and the values that belong there."""
    x = model.embed(ids)
    rotary = model.rotary(0, ids.shape[1]) if model.config.mixer == "softmax" else None
    for layer, state in zip(model.layers, model.initial_state(ids.shape[0])):
        x, _ = layer(x, rotary, state)
    return model.head(x[:, 2 * pairs::2]), ids[:, 2 * pairs + 1::2]


@torch.no_grad()
def measure(model, seed, queries):
    """Share of right values by the number of pairs."""
    generator, right = torch.Generator().manual_seed(seed), {}
    for pairs in SIZES:
        logits, values = logits_of(model, problems(max(2, queries // pairs), pairs, generator), pairs)
        right[pairs] = round((logits.argmax(-1) == values).float().mean().item(), 4)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixer", choices=sorted(MIXERS), required=True)
    parser.add_argument("--no-conv", action="store_true", help="linear and performer: without the short convolutions")
    parser.add_argument("--no-gate", action="store_true", help="linear and performer: without the output gate")
    parser.add_argument("--no-decay", action="store_true", help="mamba2: A fixed at -2e-9, so that nothing is forgotten")
    parser.add_argument("--out", type=Path, required=True, help="folder for the exported model")
    parser.add_argument("--run", type=Path, help="folder for checkpoint and log (default: OUT.run)")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=8192, help="of a step")
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW: embedding, norms, convolutions")
    parser.add_argument("--matrix-lr", type=float, default=7e-3, help="Muon: matrices inside the blocks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    run = args.run or args.out.with_name(args.out.name + ".run")
    run.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    torch.set_flush_denormal(True)
    config = config_of(args)
    model = Decoder(config)
    if args.no_decay:
        forget_nothing(model)
    optimizer = Optimizer(model, args.matrix_lr, args.lr)
    checkpoint, log, step, seconds = run / "checkpoint.pt", run / "log.jsonl", 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        optimizer.load_state_dict(saved["optimizer"])
        model.load_state_dict(saved["buffers"], strict=False)
        step, seconds = saved["step"], saved["seconds"]
    print(f"{args.mixer}: {sum(p.numel() for p in model.parameters())} parameters, from step {step}", flush=True)
    recent, began, saved_at = [], time.time() - seconds, time.time()
    while step < args.steps:
        generator = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
        largest = min(len(SIZES), 2 + math.floor(len(SIZES) * 2 * step / args.steps))
        pairs = SIZES[torch.randint(largest, (1,), generator=generator).item()]
        logits, values = logits_of(model, problems(args.tokens // (4 * pairs), pairs, generator), pairs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), values.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(rate(step, args.steps, 100, 0.3))
        recent.append(loss.item())
        step += 1
        if step % 100 == 0 or step == args.steps:
            line = {"step": step, "seconds": round(time.time() - began, 1), "loss": round(sum(recent) / len(recent), 4)}
            if step % 500 == 0 or step == args.steps:
                line["right"] = measure(model, 7, 1024)
            with log.open("a") as f:
                f.write(json.dumps(line) + "\n")
            print(line, flush=True)
            recent.clear()
        if time.time() - saved_at > 120 or step == args.steps:
            save(checkpoint, {"optimizer": optimizer.state_dict(), "step": step, "seconds": time.time() - began,
                              "config": config.to_dict(), "buffers": dict(model.named_buffers())})
            saved_at = time.time()
    export.write({**optimizer.master, **dict(model.named_buffers())}, config, None, args.out, trained_length=4 * SIZES[-1])
    print(f"exported to {args.out}", flush=True)


if __name__ == "__main__":
    main()
