"""Tables and figures of model/zoo/README.md, and the picture of README.md, from measured.json.

    python3 model/zoo/draw.py                      # writes them again
    python3 model/zoo/draw.py --results FOLDER     # first makes measured.json of what measure.sh wrote there
    python3 model/zoo/draw.py --check              # writes nothing; exit status 1 where something is not as measured

Python's own library only.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from svg import Panel, figure

HERE = Path(__file__).resolve().parent
TWINS = ("mamba", "mamba2", "softmax", "performer", "linear")
NAMES = {"mamba": "Mamba", "mamba2": "Mamba-2", "softmax": "softmax", "performer": "Performer", "linear": "linear"}
POSITIONS = (1000, 10000, 100000, 1000000)
RECALL = ("softmax", "linear", "performer", "mamba2", "mamba")
ABLATIONS = {"linear": "linear", "linear-no-conv": "without convolution", "linear-no-gate": "without gate",
             "linear-plain": "without both", "mamba2": "Mamba-2", "mamba2-no-decay": "Mamba-2, no decay"}
SPREADS = ("0.25", "0.5", "1", "2")


# ---- measured.json

def read(folder, name):
    path = folder / name
    if not path.exists():
        sys.exit(f"{path} is missing: run model/zoo/measure.sh, or its part alone with --only")
    return path.read_text()


def twin(name):
    return name.removeprefix("tales-").removesuffix("-int8")


def favor_rows(text):
    """weir_favor_bench's table."""
    rows = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 10 and fields[0].isdigit():
            rows[fields[0]] = {"astray": dict(zip(SPREADS, map(float, fields[1:5]))), "state_bytes": int(fields[5]),
                               "smaller_from": int(fields[6]), "quicker_from": int(fields[8]),
                               "of_128": float(fields[9])}
    return rows


def collect(folder):
    scores, int8 = json.loads(read(folder, "scores.json")), json.loads(read(folder, "int8.json"))
    recall = json.loads(read(folder, "recall.json"))
    twins = {twin(m["name"]): {k: m[k] for k in ("parameters", "weight_bytes", "tokens", "bits_per_byte",
                                                 "by_position")} for m in scores["models"]}
    for model in int8["models"]:
        twins[twin(model["name"])]["int8"] = {k: model[k] for k in ("weight_bytes", "bits_per_byte")}
    for name in ("growth.json", "growth-softmax.json"):
        for model in json.loads(read(folder, name))["models"]:
            twins[twin(model["name"])]["points"] = [
                {"position": p["position"], "session_bytes": p["session_bytes"], "ms": p["itl_ms"]["mean"]}
                for p in model["growth"]["points"]]
            if model["state"]["kind"] == "paged":
                twins[twin(model["name"])]["block"] = {k: model["state"][f"block_{k}"] for k in ("bytes", "tokens")}
    for model in json.loads(read(folder, "prefill.json"))["models"]:
        traffic = model["traffic"][0]
        twins[twin(model["name"])]["prefill"] = round(
            traffic["tokens"]["prompt"] / traffic["requests"]["completed"] / traffic["ttft_ms"]["p50"] * 1000)
    return {"machine": read(folder, "machine.txt").strip(), "window": scores["window"], "stretches": scores["stretches"],
            "twins": twins, "favor": favor_rows(read(folder, "favor.txt")),
            "recall": {"queries": recall["queries"], "seed": recall["seed"], "models": {
                m["name"].removeprefix("recall-"): {k: m[k] for k in ("parameters", "state_bytes", "kv_bytes_per_token",
                                                                      "right")} for m in recall["models"]}}}


# ---- what follows from it

def bytes_at(model, position):
    """Measured, or for a paged cache beyond that what its blocks take."""
    for point in model["points"]:
        if point["position"] == position:
            return point["session_bytes"], True
    block = model["block"]
    return -(-position // block["tokens"]) * block["bytes"], False


def break_even_bytes(fixed, softmax):
    """The first position that needs a block more than fit in the fixed state, as `weir loadtest` counts."""
    block = softmax["block"]
    return fixed["points"][0]["session_bytes"] // block["bytes"] * block["tokens"] + 1


def break_even_time(fixed, softmax):
    """From which position a token of the fixed state takes less time than one of softmax, in words: between two
    measured positions by their line; nothing is said of positions before the first."""
    ms = sorted(p["ms"] for p in fixed["points"])
    median = (ms[(len(ms) - 1) // 2] + ms[len(ms) // 2]) / 2
    points = sorted(softmax["points"], key=lambda p: p["position"])
    if points[0]["ms"] >= median:
        return "≤ " + size(points[0]["position"])
    for low, high in zip(points, points[1:]):
        if high["ms"] >= median:
            share = (median - low["ms"]) / (high["ms"] - low["ms"])
            return size(round(low["position"] + share * (high["position"] - low["position"])))
    return "none"


# ---- tables

def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def size(count):
    return f"{count:,}"


def words(position):
    return {1000: "1k", 10000: "10k", 100000: "100k", 1000000: "1M"}[position]


def twins_table(data):
    twins, softmax = data["twins"], data["twins"]["softmax"]
    rows = [["parameters"] + [size(twins[t]["parameters"]) for t in TWINS],
            ["**held out, bits per byte**"] + [f"**{twins[t]['bits_per_byte']:.3f}**" for t in TWINS],
            ["the same with int8 matrices"] + [
                f"{twins[t]['int8']['bits_per_byte']:.3f} ({100 * (twins[t]['int8']['bits_per_byte'] / twins[t]['bits_per_byte'] - 1):+.3f} %)"
                for t in TWINS]]
    for i, part in enumerate(softmax["by_position"]):
        times = f", to {part['to'] // data['window']} ×"
        rows.append([f"bits per byte, tokens {size(part['from'])} to {size(part['to'])}{times}"] +
                    [f"{twins[t]['by_position'][i]['bits_per_byte']:.3f}" for t in TWINS])
    for position in POSITIONS:
        cells = []
        for t in TWINS:
            count, measured = bytes_at(twins[t], position)
            cells.append(size(count) + ("" if measured else " *"))
        rows.append([f"bytes of a session at {words(position)} tokens"] + cells)
    for position in POSITIONS:
        cells = []
        for t in TWINS:
            found = [p["ms"] for p in twins[t]["points"] if p["position"] == position]
            cells.append(f"{found[0]:.2f}" if found else "–")
        rows.append([f"decode, ms a token at {words(position)}"] + cells)
    rows.append(["prefill, tokens/s"] + [size(twins[t]["prefill"]) for t in TWINS])
    rows.append(["less bytes than softmax from token"] +
                ["–" if t == "softmax" else size(break_even_bytes(twins[t], softmax)) for t in TWINS])
    rows.append(["less time a token than softmax from token"] +
                ["–" if t == "softmax" else break_even_time(twins[t], softmax) for t in TWINS])
    rows.append(["bytes of weights, bf16"] + [size(twins[t]["weight_bytes"]) for t in TWINS])
    rows.append(["bytes of weights, int8"] + [size(twins[t]["int8"]["weight_bytes"]) for t in TWINS])
    return table([""] + [NAMES[t] for t in TWINS], rows)


def fresh_table(data):
    rows = []
    for i, part in enumerate(data["twins"]["softmax"]["by_position"]):
        cells = []
        for t in TWINS:
            own = data["twins"][t]["by_position"][i]
            cells.append("–" if own["fresh"] is None else f"{own['bits_per_byte'] - own['fresh']:+.3f}")
        rows.append([f"{size(part['from'])} to {size(part['to'])}"] + cells)
    return table(["tokens"] + [NAMES[t] for t in TWINS], rows)


def recall_table(data, names, labels):
    models = data["recall"]["models"]
    pairs = list(next(iter(models.values()))["right"])
    rows = []
    for name in names:
        model = models[name]
        state = (size(model["state_bytes"]) if model["state_bytes"] is not None
                 else f"{model['kv_bytes_per_token']} a token")
        rows.append([labels[name], size(model["parameters"]), state] +
                    [f"{100 * model['right'][n]:.0f}" for n in pairs])
    return table(["", "parameters", "bytes of state"] + [f"{n} pairs" for n in pairs], rows)


def favor_table(data):
    favor = data["favor"]
    rows = [[f"astray, s = {s}"] + [f"{favor[d]['astray'][s]:.3f}" for d in favor] for s in SPREADS]
    rows.append(["bytes of a state"] + [size(favor[d]["state_bytes"]) for d in favor])
    rows.append(["state smaller from token"] + [size(favor[d]["smaller_from"]) for d in favor])
    rows.append(["step quicker from token"] + [size(favor[d]["quicker_from"]) for d in favor])
    rows.append(["time of a step over d' = 128"] + [f"{favor[d]['of_128']:.2f}" for d in favor])
    return table(["d'"] + list(favor), rows)


# ---- figures

# Names to colours: those of the twins, and the ablations' such that linear and Mamba-2 keep theirs.
ORDER = tuple(NAMES[t] for t in TWINS)
ABLATION_ORDER = ("without both", "Mamba-2", "without convolution", "without gate", "linear", "Mamba-2, no decay")


def by_position(data):
    return {NAMES[t]: [(p["to"], p["bits_per_byte"]) for p in data["twins"][t]["by_position"]] for t in TWINS}


def bytes_of(data, names):
    return {NAMES[t]: [(p, bytes_at(data["twins"][t], p)[0]) for p in POSITIONS] for t in names}


def figures(data):
    positions = Panel("bits per byte", "tokens read from an empty state", by_position(data), log_x=True, order=ORDER)
    memory = Panel("bytes of a session", "position, tokens", bytes_of(data, TWINS), log_x=True, log_y=True,
                   order=ORDER)
    time = Panel("ms a token", "position, tokens",
                 {NAMES[t]: [(p["position"], p["ms"]) for p in data["twins"][t]["points"]] for t in TWINS},
                 log_x=True, log_y=True, order=ORDER)
    models = data["recall"]["models"]

    def right(names, labels):
        return {labels[n]: [(int(p), 100 * share) for p, share in models[n]["right"].items()] for n in names}

    recall = Panel("values found, %", "pairs", right(RECALL, NAMES), log_x=True, low=0, high=100,
                   order=ORDER)
    ablations = Panel("values found, %", "pairs", right(ABLATIONS, ABLATIONS), log_x=True, low=0, high=100,
                      order=ABLATION_ORDER)
    favor = data["favor"]
    error = Panel("attention gone astray", "features d'", {
        f"s = {s}": [(int(d), row["astray"][s]) for d, row in favor.items()] for s in SPREADS}, log_x=True, low=0, high=1)
    cost = Panel("times d' = 128", "features d'", {
        "step time": [(int(d), row["of_128"]) for d, row in favor.items()],
        "bytes": [(int(d), row["state_bytes"] / favor["128"]["state_bytes"]) for d, row in favor.items()]},
        log_x=True, log_y=True)
    story = [Panel("bytes of a session", "position, tokens", bytes_of(data, ("softmax", "linear", "mamba")),
                   log_x=True, log_y=True, order=ORDER), positions]
    return {"story.svg": figure("What a session costs, and what it buys", story),
            "cost.svg": figure("A session's bytes and time by position", [memory, time]),
            "recall.svg": figure("Associative recall", [recall, ablations]),
            "favor.svg": figure("Performer's number of features", [error, cost])}


def render(data):
    tables = {"twins": twins_table(data), "fresh": fresh_table(data), "recall": recall_table(data, RECALL, NAMES),
              "ablations": recall_table(data, ABLATIONS, ABLATIONS), "favor": favor_table(data),
              "machine": data["machine"]}
    return tables, figures(data)


def write(path, text, check):
    if path.exists() and path.read_text() == text:
        return True
    if not check:
        path.write_text(text)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="folder of measure.sh")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    measured = HERE / "measured.json"
    if args.results:
        measured.write_text(json.dumps(collect(args.results), indent=1) + "\n")
    try:
        tables, drawings = render(json.loads(measured.read_text()))
    except KeyError as missing:
        sys.exit(f"{measured} has no {missing}: make it again with model/zoo/measure.sh")
    readme = (HERE / "README.md").read_text()
    for name, text in tables.items():
        readme, count = re.subn(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", lambda m, t=text: m[1] + t + m[2], readme,
                                flags=re.S)
        if count != 1:
            sys.exit(f"README.md has {count} places <!-- {name} --> … <!-- end -->, and needs one")
    (HERE / "figures").mkdir(exist_ok=True)
    same = [write(HERE / "README.md", readme, args.check)]
    same += [write(HERE / "figures" / name, text, args.check) for name, text in drawings.items()]
    if args.check and not all(same):
        sys.exit("tables or figures are not those of measured.json: run python3 model/zoo/draw.py")


if __name__ == "__main__":
    main()
