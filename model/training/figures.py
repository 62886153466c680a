"""Draw the loss curves of runs (their log.jsonl) as one small SVG.

    python figures.py --out model/zoo/loss.svg softmax=RUN/log.jsonl linear=RUN/log.jsonl
"""

import argparse
import json
import math
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 380, 56, 24, 16, 44
# Light and dark scheme, as the reader's is.
COLOURS = ["#0072b2", "#c14a00", "#007a59", "#a6539a", "#8a6d00"]
DARK = ["#58a6ff", "#ff8a4c", "#3fd0a0", "#d99be0", "#e3b341"]
STYLE = ("text{fill:#1f2328}.b{fill:#fff}.g{stroke:#d0d7de}" +
         "".join(f".l{i}{{stroke:{c};fill:none}}.f{i}{{fill:{c}}}" for i, c in enumerate(COLOURS)) +
         "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#0d1117}.g{stroke:#3d444d}" +
         "".join(f".l{i}{{stroke:{c}}}.f{i}{{fill:{c}}}" for i, c in enumerate(DARK)) + "}")


def ticks(low, high, step):
    value = math.ceil(low / step - 1e-9) * step
    while value <= high + 1e-9:
        yield round(value, 6)
        value += step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="NAME=LOG")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    curves = {}
    for run in args.runs:
        name, log = run.split("=", 1)
        lines = list({l["step"]: l for l in map(json.loads, Path(log).read_text().splitlines())}.values())
        curves[name] = ([(l["tokens"] / 1e6, l["loss"]) for l in lines],
                        [(l["tokens"] / 1e6, l["held_out_loss"]) for l in lines if "held_out_loss" in l])
    every = [p for train, held in curves.values() for p in train + held]
    right = max(x for x, _ in every)
    low = math.floor(min(y for _, y in every) * 5) / 5
    high = 6.0

    def place(x, y):
        return (LEFT + x / right * (WIDTH - LEFT - RIGHT),
                TOP + (high - min(y, high)) / (high - low) * (HEIGHT - TOP - BOTTOM))

    def path(points):
        return " ".join(f"{px:.1f},{py:.1f}" for px, py in (place(x, y) for x, y in points if y <= high))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<style>{STYLE}</style>',
           f'<rect class="b" width="{WIDTH}" height="{HEIGHT}"/>']
    for y in ticks(low, high, 0.5):
        _, py = place(0, y)
        out.append(f'<path d="M{LEFT} {py:.1f}H{WIDTH - RIGHT}" class="g"/>'
                   f'<text x="{LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in ticks(0, right, 1 if right < 12 else 2):
        px, _ = place(x, low)
        out.append(f'<text x="{px:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">million tokens</text>'
               f'<text x="{LEFT}" y="{TOP - 8}">nats per token (line: training, dots: held out)</text>')
    for i, (name, (train, held)) in enumerate(curves.items()):
        style = i % len(COLOURS)
        out.append(f'<polyline class="l{style}" stroke-width="1.2" points="{path(train)}"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.6" class="f{style}"/>'
                for px, py in (place(x, y) for x, y in held if y <= high)]
        last = f": {held[-1][1]:.3f}" if held else ""
        out.append(f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 16 + 16 * i}" text-anchor="end" class="f{style}">{name}{last}</text>')
    args.out.write_text("\n".join(out + ["</svg>"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
