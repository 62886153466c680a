"""Write expected.json into an exported folder: logits and greedy ids that an implementation must reproduce.

    python golden.py --long-prompt valid.txt model/zoo/tales-softmax model/zoo/tales-linear

The weights are the folder's bf16 values; all arithmetic is fp32, one token at a time (recurrent form), and is checked
here against the same in fp64.  `top2_gap_min` is the smallest distance between best and second-best logit over the
greedy ids: an implementation whose logits are nearer to these than half of it must choose the same ids.
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

import data
import export

GREEDY = 64
SHORT = ["Once upon a time there was a king who had three sons.", "\"Where are you going?\" asked the fox."]


def run(model, ids, follow=None):
    """Logits after the prompt, the greedy ids (or the given ones), and all logits on the way."""
    states = model.initial_state(1, model.embeddings.weight.dtype)
    for position, i in enumerate(ids):
        logits, states = model.step(torch.tensor([i]), states, position)
    chosen, seen = [], []
    for n in range(GREEDY):
        seen.append(logits[0])
        chosen.append(int(logits.argmax()) if follow is None else follow[n])
        logits, states = model.step(torch.tensor(chosen[-1:]), states, len(ids) + n)
    return chosen, torch.stack(seen)


def case(single, double, tokenizer, name, prompt, ids):
    chosen, logits = run(single, ids)
    _, exact = run(double, ids, chosen)
    best = logits.topk(2).values
    return {"name": name, "prompt": prompt, "prompt_token_ids": ids,
            "logits_after_prompt_first_16": [round(float(x), 6) for x in logits[0][:16]],
            "logits_after_prompt_argmax": int(logits[0].argmax()), "logits_after_prompt_max": round(float(logits[0].max()), 6),
            "greedy_token_ids": chosen, "greedy_text": tokenizer.decode(chosen, skip_special_tokens=False),
            "top2_gap_min": round(float((best[:, 0] - best[:, 1]).min()), 6),
            "largest_difference_to_fp64": float((logits.double() - exact).abs().max())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--long-prompt", type=Path, required=True, help="text whose beginning is the long prompt")
    parser.add_argument("--long-tokens", type=int, default=300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = data.documents(args.long_prompt.read_text(encoding="utf-8"))[0]
    for folder in args.folders:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        single, double = export.read(folder), export.read(folder, torch.float64)
        cases = [case(single, double, tokenizer, "short", p, [0] + tokenizer.encode(p).ids) for p in SHORT]
        ids = [0] + tokenizer.encode(text).ids[:args.long_tokens - 1]
        cases.append(case(single, double, tokenizer, "long", tokenizer.decode(ids), ids))
        lines = ",\n".join("  " + json.dumps(c) for c in cases)
        (folder / "expected.json").write_text(
            '{"precision": "fp32 arithmetic on the bf16 weights, recurrent form, one token at a time; prompts begin with '
            f'<|endoftext|> (id 0); greedy runs on past id 0",\n "cases": [\n{lines}\n]}}\n', encoding="utf-8")
        for c in cases:
            print(folder.name, c["name"], "gap", c["top2_gap_min"], "to fp64", f"{c['largest_difference_to_fp64']:.1e}",
                  repr(c["greedy_text"][:100]))


if __name__ == "__main__":
    main()
