"""Line charts as SVG that follow the reader's light or dark scheme: panels side by side, lines told apart by colour, dash
and marker, and named where they end."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 320  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 62, 146, 40, 46
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4")
STYLE = """text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600;font-size:13px}.g{stroke:#d0d7de}
.a{fill:#59636e}.b{fill:#fff}path,circle{fill:none}.c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#a6539a}
.c4{stroke:#8a6d00}.c5{stroke:#444c56}.l{stroke-width:2}circle{stroke-width:2}
@media(prefers-color-scheme:dark){.b{fill:#0d1117}text{fill:#e6edf3}.g{stroke:#3d444d}.a{fill:#9198a1}.c0{stroke:#58a6ff}
.c1{stroke:#ff8a4c}.c2{stroke:#3fd0a0}.c3{stroke:#d99be0}.c4{stroke:#e3b341}.c5{stroke:#c9d1d9}}"""


@dataclass
class Panel:
    y_title: str
    x_title: str
    series: dict  # name -> [(x, y)]
    log_x: bool = False
    log_y: bool = False
    low: float = None
    high: float = None
    order: tuple = ()  # names whose place here chooses colour and dash, the same in every panel; else that in `series`

    def style(self, name):
        return (self.order or tuple(self.series)).index(name)


def short(value):
    if 1024 <= value < 2 ** 20 and math.log2(value).is_integer():
        return f"{value // 1024:.0f}Ki"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def linear_ticks(low, high):
    step = 10 ** math.floor(math.log10((high - low) / 3))
    while (high - low) / step > 6:
        step *= 2 if round(step / 10 ** math.floor(math.log10(step))) != 2 else 2.5
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low, high):
    ticks = [10.0 ** i for i in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    ticks = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
    return ticks if len(ticks) >= 2 else [low * 2.0 ** i for i in range(int(math.log2(high / low)) + 1)]


def apart(wanted, gap, low, high):
    """Heights of labels, each near the one wanted and `gap` from the next."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = []
    for i in order:
        placed.append(max(wanted[i], placed[-1] + gap if placed else low))
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], placed[k + 1] - gap if k + 1 < len(placed) else high)
    return {i: placed[k] for k, i in enumerate(order)}


def draw(panel, x0):
    xs = [x for points in panel.series.values() for x, _ in points]
    ys = [y for points in panel.series.values() for _, y in points]
    left, right = min(xs), max(xs)
    low = min(ys) if panel.low is None else panel.low
    high = max(ys) if panel.high is None else panel.high
    if panel.log_y:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
    elif panel.low is None:
        low, high = low - (high - low) * 0.08, high + (high - low) * 0.08
    span_x, span_y = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def share(value, start, end, log):
        return math.log(value / start) / math.log(end / start) if log else (value - start) / (end - start)

    def px(x):
        return x0 + LEFT + share(x, left, right, panel.log_x) * span_x

    def py(y):
        return TOP + (1 - share(y, low, high, panel.log_y)) * span_y

    out = [f'<text class="t" x="{x0 + 8}" y="22">{escape(panel.y_title)}</text>']
    for y in log_ticks(low, high) if panel.log_y else linear_ticks(low, high):
        out.append(f'<path class="g" d="M{x0 + LEFT} {py(y):.1f}h{span_x}"/><text class="a" text-anchor="end" '
                   f'x="{x0 + LEFT - 6}" y="{py(y) + 4:.1f}">{short(y)}</text>')
    shown = sorted({x for x in xs})
    for x in shown if len(shown) <= 8 else log_ticks(left, right):
        out.append(f'<text class="a" text-anchor="middle" x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 18}">{short(x)}</text>')
    out.append(f'<text class="a" text-anchor="middle" x="{x0 + LEFT + span_x / 2:.1f}" y="{HEIGHT - 8}">'
               f'{escape(panel.x_title)}</text>')
    ends = [py(points[-1][1]) for points in panel.series.values()]
    heights = apart(ends, 15, TOP, HEIGHT - BOTTOM)
    for i, (name, points) in enumerate(panel.series.items()):
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in points)
        style = panel.style(name)
        dash = f' stroke-dasharray="{DASHES[style]}"' if DASHES[style] else ""
        out.append(f'<path class="l c{style}" d="M{path}"{dash}/>')
        out += [f'<circle class="c{style}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3"/>' for x, y in points]
        end_x, y = px(points[-1][0]), heights[i]
        label_x = end_x + 14  # beside the end: a long line to the margin would look like more of the curve
        out.append(f'<path class="c{style}" d="M{end_x + 4:.1f} {ends[i]:.1f}L{label_x - 3} {y:.1f}"/>'
                   f'<text x="{label_x}" y="{y + 4:.1f}">{escape(name)}</text>')
    return out


def figure(title, panels):
    width = WIDTH * len(panels)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
           f'role="img"><title>{escape(title)}</title><style>{STYLE}</style><rect class="b" width="{width}" height="{HEIGHT}"/>']
    for i, panel in enumerate(panels):
        out += draw(panel, i * WIDTH)
    return "\n".join(out + ["</svg>"]) + "\n"
