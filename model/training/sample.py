"""Write text with an exported twin (recurrent form, fp32).

    python sample.py model/zoo/tales-linear --prompt "Once upon a time" --tokens 300
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import export


def choose(logits, temperature, top_p, draw):
    """One id by temperature and nucleus sampling; greedy at temperature 0."""
    if temperature == 0:
        return int(logits.argmax())
    p, ids = (logits.double() / temperature).softmax(-1).sort(descending=True)
    kept = p.cumsum(-1) - p < top_p
    p = (p * kept / (p * kept).sum()).numpy()
    return int(ids[draw.choice(len(p), p=p)])


def generate(model, ids, tokens, temperature, top_p, seed, stop_at_end=True):
    """The ids that follow `ids`."""
    draw = np.random.default_rng(seed)
    dtype = model.embeddings.weight.dtype
    states, out = model.initial_state(1, dtype), []
    for position, i in enumerate(ids):
        logits, states = model.step(torch.tensor([i]), states, position)
    while len(out) < tokens:
        out.append(choose(logits[0], temperature, top_p, draw))
        if stop_at_end and out[-1] == 0:
            break
        logits, states = model.step(torch.tensor(out[-1:]), states, len(ids) + len(out) - 1)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-begin", action="store_true", help="do not put <|endoftext|> before the prompt")
    parser.add_argument("--past-end", action="store_true", help="go on after <|endoftext|>")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    ids = ([] if args.no_begin else [0]) + tokenizer.encode(args.prompt).ids
    out = generate(export.read(args.folder), ids, args.tokens, args.temperature, args.top_p, args.seed, not args.past_end)
    print(args.prompt + tokenizer.decode(out, skip_special_tokens=False))


if __name__ == "__main__":
    main()
