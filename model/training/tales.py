"""Turn the tales corpus into train.txt and valid.txt with a mark between books and between tales.

The corpus is one paragraph a line, books one after the other without marks or headings.  `books.tsv` names the first
line of every book (and of its preface or list of contents, which is dropped) and which whole books are held out.
Inside collections a new tale begins after a source note ("Grimm.", "From the Swedish.", dropped) and before a
paragraph that opens as tales do ("Once upon a time ...", a first word in capitals).  A few borders are missed and a
few are false; headings are not in the corpus, so nothing better was found.

    python tales.py --corpus DIR --out DIR
"""

import argparse
import re
from pathlib import Path

MARK = "<|endoftext|>"
OPENING = re.compile(
    r"(Once upon a time|Once on a time|Once there (was|were|lived)|There (was|were) once|There once (was|were|lived)"
    r"|There lived once|There once upon|There was a time when|Long,? long ago|Long ago|(Many|Some|A long time)[a-z ,]* ago"
    r"|In (the )?(olden|old) (times|days)|In times (past|of yore)|A (certain )?(king|queen|man|woman|merchant|fisherman"
    r"|peasant|soldier|tailor|miller|father|mother|widow)[a-z ,]* (had|once|lived)|IN the|[A-Z]{3,} (upon|was|were|there|once|long|ago|lived))")
NOTE = re.compile(
    r"[(\[]?(From |Translated|Adapted|Taken from|Grimm|Madame d|Charles Perrault|Asbjornsen|P\. C\.|The .* Saga|West Highland"
    r"|Contes|Chambers,|Ch\. Marelles|La bonne|Sebillot|Fenelon|Hibernian|The Hibernian|Hans Andersen|Andersen|Perrault)"
    r".{0,90}$|\(.{3,60}([Mm]archen|[Tt]ales|Sagen).{0,30}\)?$|\[.*\]$")
JUNK = re.compile(r"(\[?FN#|\(?\d+\)? |\* |Footnote|\[[Ff]ootnote|End of The )")
LAST_SENTENCE = re.compile(r"""[.!?]['")\]]*$""")


def books(table, paragraphs):
    """Yield (title, set, kind, story paragraphs) for every row of the table."""
    rows = [line.split("\t") for line in table.read_text().splitlines() if line and line[0] != "#"]
    at, starts = 0, []
    for title, _, _, front, first in rows:
        def find(prefix, start):
            for i in range(start, len(paragraphs)):
                if paragraphs[i].startswith(prefix):
                    return i
            raise SystemExit(f"{title}: no paragraph starts with {prefix!r}")
        end_of_previous = find(first if front == "-" else front, at)
        at = find(first, end_of_previous)
        starts.append((end_of_previous, at))
        at += 1
    ends = [s[0] for s in starts[1:]] + [len(paragraphs)]
    for row, (_, start), end in zip(rows, starts, ends):
        yield row[0], row[1], row[2], paragraphs[start:end]


def tales(paragraphs, kind):
    """Split a collection into its tales; a novel stays whole.  Source notes and footnotes go."""
    out = [[]]
    for p in paragraphs:
        if JUNK.match(p):
            continue
        if kind == "tales" and NOTE.match(p) and len(p) < 130:
            out.append([])
            continue
        closed = not out[-1] or LAST_SENTENCE.search(out[-1][-1])
        if kind == "tales" and OPENING.match(p) and closed and len(out[-1]) > 5:
            out.append([])
        out[-1].append(p)
    return [tale for tale in out if tale]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with tales-*.txt")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    text = "".join(f.read_text(encoding="utf-8") for f in sorted(args.corpus.glob("tales-*.txt")))
    sets = {"train": [], "valid": []}
    for title, which, kind, paragraphs in books(Path(__file__).with_name("books.tsv"), text.splitlines()):
        parts = tales(paragraphs, kind)
        sets[which] += ["\n".join(part) for part in parts]
        print(f"{which}  {title}: {sum(map(len, paragraphs))} bytes, {len(parts)} tales")
    args.out.mkdir(parents=True, exist_ok=True)
    for which, parts in sets.items():
        (args.out / f"{which}.txt").write_text(f"\n{MARK}\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
