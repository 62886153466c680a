"""Held-out bits per byte of exported twins: in windows of the trained length, and by position far beyond it.

    python evaluate.py --valid valid.txt --reach 32768 --starts 4 model/zoo/tales-softmax model/zoo/tales-linear

Every number is fp32 arithmetic on the exported (bf16) weights.  The table by position reads `--starts` held-out
stretches of `--reach` tokens, each from an empty state.  Because some stretches are harder than others, it also says
what the same tokens cost when they are read in fresh windows of the trained length ("fresh").
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import data
import export

PIECE = 2048  # tokens of one call when a state is carried


def token_bytes(tokenizer):
    """Bytes that each id stands for (0 for the mark); byte-level BPE writes one character a byte."""
    sizes = [len(tokenizer.id_to_token(i)) for i in range(tokenizer.get_vocab_size())]
    sizes[0] = 0
    return np.array(sizes)


def losses(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


@torch.no_grad()
def fresh_windows(model, ids, length, every=1, rows=8):
    """Loss of every token, read in windows of `length` that begin from an empty state; nan where none was read."""
    out = np.full(len(ids), np.nan, dtype=np.float32)
    starts = list(range(0, len(ids) - 1 - length, length * every))
    rotary = model.rotary(0, length)
    for i in range(0, len(starts), rows):
        group = starts[i:i + rows]
        both = torch.from_numpy(np.stack([ids[s:s + length + 1] for s in group]).astype(np.int64))
        nll = losses(model(both[:, :-1], None, rotary)[0], both[:, 1:]).numpy()
        for s, row in zip(group, nll):
            out[s + 1:s + length + 1] = row
    return out


@torch.no_grad()
def one_stretch(model, ids):
    """Loss of ids[1:], read in one go from an empty state."""
    both = torch.from_numpy(ids.astype(np.int64))[None]
    length = both.shape[1] - 1
    if model.config.mixer == "softmax":
        return losses(model(both[:, :-1])[0], both[:, 1:])[0].numpy()
    states, out = None, []
    for at in range(0, length, PIECE):
        logits, states = model(both[:, at:min(at + PIECE, length)], states)
        out.append(losses(logits, both[:, at + 1:at + 1 + logits.shape[1]])[0])
    return torch.cat(out).numpy()


def borders(reach):
    edges = [0, 256]
    while edges[-1] < reach:
        edges.append(edges[-1] * 2)
    return edges


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--valid", required=True, type=Path)
    parser.add_argument("--reach", type=int, default=32768)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--length", type=int, help="trained length (default: the folder's)")
    parser.add_argument("--every", type=int, default=1, help="read one fresh window in so many (to save time)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    figures = {}
    for folder in args.folders:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = data.encode(tokenizer, data.documents(args.valid.read_text(encoding="utf-8")))
        sizes = token_bytes(tokenizer)[ids]
        model = export.read(folder)
        length = args.length or json.loads((folder / "config.json").read_text())["trained_length"]
        fresh = fresh_windows(model, ids, length, args.every)
        read = ~np.isnan(fresh)
        whole = float(fresh[read].sum() / math.log(2) / sizes[read].sum())
        print(f"{folder.name}: {read.sum()} held-out tokens in windows of {length}: {whole:.4f} bits per byte, "
              f"{fresh[read].mean():.4f} nats per token", flush=True)
        edges = borders(args.reach)
        rows = [[0.0, 0, 0.0, 0] for _ in edges[1:]]  # bits and bytes; bits and bytes in fresh windows
        room = len(ids) - 1 - args.reach
        for start in np.linspace(0, room, args.starts).astype(int):
            nll = one_stretch(model, ids[start:start + args.reach + 1])
            for row, low, high in zip(rows, edges, edges[1:]):
                here = slice(start + 1 + low, start + 1 + high)
                row[0] += nll[low:high].sum() / math.log(2)
                row[1] += int(sizes[here].sum())
                row[2] += np.nansum(fresh[here]) / math.log(2)
                row[3] += int(sizes[here][read[here]].sum())
        table = [{"from": low, "to": high, "bits_per_byte": round(float(r[0] / r[1]), 4),
                  "fresh": round(float(r[2] / r[3]), 4) if r[3] else None} for r, low, high in zip(rows, edges, edges[1:])]
        for line in table:
            print(f"  {line['from']:>6} to {line['to']:>6}: {line['bits_per_byte']:.3f}   fresh {line['fresh']}", flush=True)
        figures[folder.name] = {"bits_per_byte": round(whole, 4), "length": length, "by_position": table}
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
