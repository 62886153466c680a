"""Train a small decoder on plain text and export it as a Hugging Face folder.

    python model/training/train.py --text my.txt --mixer linear --out model/zoo/mine

A line holding only <|endoftext|> parts one text from the next.  Everything is resumable: the run folder keeps the
tokenizer, the loss log and a checkpoint every few minutes, and the same command continues.  `--tokens` may be
changed on resume: the learning rate is warm-up, constant, then a straight line to zero over the last quarter
(`--decay`), so only the end of the run depends on it.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import data
import export
from model import MIXERS, SSM, Config, Decoder
from optim import Optimizer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="training text, UTF-8")
    parser.add_argument("--valid", nargs="*", help="held-out text (default: the last 5 %% of the texts)")
    parser.add_argument("--out", required=True, help="folder for the exported model")
    parser.add_argument("--run", help="folder for checkpoints and logs (default: OUT.run)")
    parser.add_argument("--tokenizer", help="tokenizer.json to use or to make (default: RUN/tokenizer.json)")
    parser.add_argument("--mixer", choices=sorted(MIXERS), default="linear")
    parser.add_argument("--no-conv", action="store_true", help="linear: without the short convolutions")
    parser.add_argument("--no-gate", action="store_true", help="linear: without the output gate")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--intermediate", type=int, help="default: 512 (448 with the gate: equal parameters at 192; Mamba: none)")
    parser.add_argument("--layers", type=int, help="default: 6 (Mamba: 11, equal parameters at 192)")
    parser.add_argument("--state", type=int, help="Mamba's state size (default: 16; Mamba-2: 64)")
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--tokens", type=float, default=15e6, help="tokens to train on")
    parser.add_argument("--rows", type=int, default=8, help="windows in a step")
    parser.add_argument("--length", type=int, default=512, help="tokens in a window")
    parser.add_argument("--segments", type=int, default=4,
                        help="windows read in a row; the linear mixer carries its state through them")
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW: embedding, norms, convolutions")
    parser.add_argument("--matrix-lr", type=float, default=7e-3, help="Muon: matrices inside the blocks")
    parser.add_argument("--adamw", action="store_true", help="AdamW for everything")
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--decay", type=float, default=0.25, help="share of the run in which the rate falls to zero")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-minutes", type=float, default=3.0)
    parser.add_argument("--float32", action="store_true", help="for CPUs without bf16 arithmetic")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile (needs a C++ compiler)")
    args = parser.parse_args()
    args.run = Path(args.run or args.out.rstrip("/") + ".run")
    args.tokenizer = args.tokenizer or args.run / "tokenizer.json"
    if args.layers is None:
        args.layers = 11 if args.mixer in SSM else 6
    if args.state is None:
        args.state = 64 if args.mixer == "mamba2" else 16
    if args.mixer in SSM:
        args.intermediate = 0
    if args.intermediate is None:
        args.intermediate = 448 if args.mixer in ("linear", "performer") and not args.no_gate else 512
    return args


def rate(step, steps, warmup, decay):
    """Warm-up, constant, linear to zero."""
    return max(0.0, min(1.0, (step + 1) / warmup, (steps - step) / (decay * steps)))


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def held_out_loss(model, ids, length, windows=64, rows=8):
    """Mean loss over evenly spaced windows, each from an empty state."""
    starts = torch.linspace(0, len(ids) - length - 2, windows).long()
    total = 0.0
    rotary = model.rotary(0, length)
    for group in starts.split(rows):
        both = torch.stack([torch.from_numpy(ids[s:s + length + 1].astype("int64")) for s in group])
        total += loss_of(model(both[:, :-1], None, rotary)[0], both[:, 1:]).item() * len(group)
    return total / windows


def begin_anew(states, blank, fresh):
    """The states, blank in the rows that begin anew."""
    return [s and tuple(torch.where(fresh.view(-1, *[1] * (part.dim() - 1)), empty, part).contiguous()
                        for part, empty in zip(s, b)) for s, b in zip(states, blank)]


def save(path, value):
    temporary = path.with_suffix(".tmp")
    torch.save(value, temporary)
    os.replace(temporary, path)


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    torch.set_flush_denormal(True)
    args.run.mkdir(parents=True, exist_ok=True)
    tokenizer, train_ids, valid_ids, valid_bytes = data.load(args.text, args.valid, args.tokenizer, args.vocab)
    bytes_per_token = valid_bytes / len(valid_ids)
    config = Config(mixer=args.mixer, conv=not args.no_conv, gate=not args.no_gate, vocab_size=tokenizer.get_vocab_size(),
                    hidden_size=args.hidden, intermediate_size=args.intermediate, num_layers=args.layers,
                    num_heads=args.heads, state_size=args.state)
    model = Decoder(config)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{args.mixer}: {parameters} parameters; {len(train_ids)} tokens to train on, {len(valid_ids)} held out, "
          f"{bytes_per_token:.3f} bytes a token", flush=True)
    optimizer = Optimizer(model, args.matrix_lr, args.lr, muon=not args.adamw)
    if not args.float32:
        model.lower()  # the optimizer keeps its fp32 masters
    streams = data.Streams(train_ids, args.rows, args.length, args.segments, args.seed)
    blank = model.initial_state(args.rows)
    states, step, seconds = blank, 0, 0.0
    checkpoint, log = args.run / "checkpoint.pt", args.run / "log.jsonl"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        optimizer.load_state_dict(saved["optimizer"])
        model.load_state_dict(saved["buffers"], strict=False)
        states, step, seconds = saved["states"], saved["step"], saved["seconds"]
        print(f"resumed at step {step}", flush=True)
    steps = int(args.tokens / (args.rows * args.length))
    if not args.no_compile:
        for layer in model.layers:  # all alike: compiled once, while the whole decoder would take minutes
            layer.compile(dynamic=False)
    rotary = model.rotary(0, args.length)
    recent, saved_at, began = [], time.time(), time.time() - seconds

    def keep():
        save(checkpoint, {"optimizer": optimizer.state_dict(), "states": states, "step": step,
                          "seconds": time.time() - began, "config": config.to_dict(),
                          "buffers": dict(model.named_buffers())})

    def note(measure):
        line = {"step": step, "tokens": step * args.rows * args.length, "seconds": round(time.time() - began, 1),
                "loss": round(sum(recent) / max(1, len(recent)), 4)}
        if measure:
            held = held_out_loss(model, valid_ids, args.length)
            line["held_out_loss"] = round(held, 4)
            line["held_out_bits_per_byte"] = round(held / math.log(2) / bytes_per_token, 4)
        with log.open("a") as f:
            f.write(json.dumps(line) + "\n")
        print(line, flush=True)
        recent.clear()

    while step < steps:
        inputs, targets, fresh = streams.batch(step)
        logits, after = model(inputs, begin_anew(states, blank, fresh), rotary)
        loss = loss_of(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(rate(step, steps, args.warmup, args.decay))
        states = after
        recent.append(loss.item())
        step += 1
        if step % 50 == 0:
            note(step % 250 == 0)
        if time.time() - saved_at > 60 * args.save_minutes:
            keep()
            saved_at = time.time()
    if recent:
        note(True)
    keep()
    export.write({**optimizer.master, **dict(model.named_buffers())}, config, args.tokenizer, Path(args.out),
                 trained_length=args.length)
    print(f"exported to {args.out}", flush=True)


if __name__ == "__main__":
    main()
