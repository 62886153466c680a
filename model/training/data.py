"""Tokenizer, token files and batches."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

MARK = "<|endoftext|>"  # id 0: begins and ends every text


def train_tokenizer(texts, vocab_size):
    """Byte-level BPE as GPT-2's: no normalizer, no prefix space, the mark as id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[MARK], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((part for text in texts for part in text.split("\n")), trainer)
    return tokenizer


def documents(text):
    """The parts between marks (a line of its own holding <|endoftext|>)."""
    return [part.strip("\n") for part in text.split(f"\n{MARK}\n") if part.strip()]


def encode(tokenizer, parts):
    """mark, text, mark, text, ..., mark as uint16; every text can begin from the mark and end with it."""
    ids = [0]
    for encoding in tokenizer.encode_batch(parts):
        ids += encoding.ids + [0]
    return np.array(ids, dtype=np.uint16)


def load(train_files, valid_files, tokenizer_file, vocab_size, valid_share=0.05):
    """Tokenizer, train ids, held-out ids and held-out bytes.  Without held-out files the last texts are held out."""
    parts = documents("\n".join(Path(f).read_text(encoding="utf-8") for f in train_files))
    if valid_files:
        held = documents("\n".join(Path(f).read_text(encoding="utf-8") for f in valid_files))
    else:
        if len(parts) == 1:  # no marks at all: the end of the text
            cut = parts[0].rfind("\n", 0, int(len(parts[0]) * (1 - valid_share)))
            cut = cut if cut > 0 else int(len(parts[0]) * (1 - valid_share))
            parts = [parts[0][:cut], parts[0][cut:].strip("\n")]
        count, size, total = 0, 0, sum(map(len, parts))
        while count < len(parts) - 1 and size < valid_share * total:
            count += 1
            size += len(parts[-count])
        parts, held = parts[:-count], parts[-count:]
    tokenizer_file = Path(tokenizer_file)
    if tokenizer_file.exists():
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    else:
        tokenizer = train_tokenizer(parts, vocab_size)
        tokenizer_file.parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(tokenizer_file))
    return tokenizer, encode(tokenizer, parts), encode(tokenizer, held), sum(len(p.encode()) for p in held)


class Streams:
    """Batches that depend on (seed, step) only, so that two models see the same tokens and a run can be resumed.

    Every row reads `segments` windows in a row from a random place and then jumps; the rows jump in turn.  A model
    with a constant state may carry it from window to window and zero it where `fresh` says that the row has jumped.
    """

    def __init__(self, ids, rows, length, segments, seed):
        self.ids, self.rows, self.length, self.segments, self.seed = ids, rows, length, segments, seed
        self.span = segments * length

    def batch(self, step):
        """inputs [rows, length], targets [rows, length], fresh [rows] (bool)."""
        out, fresh = [], []
        for row in range(self.rows):
            turn, segment = divmod(step + row, self.segments)
            draw = np.random.default_rng((self.seed, row, turn)).integers(0, len(self.ids) - self.span - 1)
            start = int(draw) + segment * self.length
            out.append(self.ids[start:start + self.length + 1].astype(np.int64))
            fresh.append(segment == 0 or step == 0)
        both = torch.from_numpy(np.stack(out))
        return both[:, :-1], both[:, 1:], torch.tensor(fresh)
