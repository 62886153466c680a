"""Writes tokenizer_families.json: small tokenizers with the split patterns of published families, and texts with the
ids that Hugging Face's `tokenizers` gives. Python is needed to make the file, not to test with it.

    pip install tokenizers && python tests/data/tokenizer_families.py
"""

import json
import random
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


FAMILIES = {
    "gpt2": (None, byte_level(True)),
    "llama3": (None, pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)])),
    "qwen2": (normalizers.NFC(), pre_tokenizers.Sequence([split(QWEN2), byte_level(False)])),
    "starcoder": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])),
    "falcon": (None, pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(individual_digits=False),
        split("[0-9][0-9][0-9]")])),
}

LINES = [
    "The quick brown fox doesn't jump over 12 lazy dogs; it's 1,234,567.89 metres away.", "I'LL SAY IT'S WE'VE 'S 's",
    "def f(x):\n    return x[1:2] + 0x1F  # comment\n\n\nclass A:\r\n\tpass\r\n", "   leading and trailing   ",
    "a\n\n  \n b \t\t c", "na\u00efve cafe\u0301 \u00c5ngstr\u00f6m \u017ftring'\u017f", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002",
    "\ud55c\uad6d\uc5b4 \u4e2d\u6587 \u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "emoji \U0001f642\U0001f468\u200d\U0001f469\u200d\U0001f467 and \u2603\ufe0f", "\u00bd \u2160 \u0663\u0664\u0665 x\u00b2 10^3",
    "!!!???...,,,  ---===", "\u00a0nbsp\u2003em\u3000ideographic\u2028line", "'", "''s'", " 's", "\r", "\r\n \r\n", " ", "",
    "http://example.com/a?b=c&d=1#e", "1 22 333 4444 55555 666666", "A1b2C3", "x\u0301\u0302y", "\x00\x01\x7f",
]


def texts():
    rng = random.Random(20260101)
    common = " \n\r\t'sStTrRvVmMlLdD0123456789.,!?aBc\u00e9\u65e5\u0301\u00a0\U0001f642"
    out = list(LINES)
    for _ in range(120):
        out.append("".join(rng.choice(common) for _ in range(rng.randrange(1, 40))))
    return out


def main():
    out = {}
    for name, (normalizer, pre_tokenizer) in FAMILIES.items():
        tokenizer = Tokenizer(models.BPE())
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=380, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(LINES * 3, trainer)
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts()]
        out[name] = {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
