"""PyTorch beside weir-gpu-bench, on the same GPU: a bf16 product, causal attention over a prompt and over many
sessions of one token, each with the backend that computed it named.

usage: torch_twin.py [--values FILE] [--seconds S] [--tiny]

--values is what weir-gpu-bench --values wrote: rows of the same name and size are set against each other.
--tiny runs everything once at small sizes, on the CPU where there is no GPU.
"""

import argparse
import csv
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    print(f"torch_twin.py: no PyTorch here ({error})", file=sys.stderr)
    sys.exit(3)

HEADS = [(9, 3, 64), (32, 8, 128)]


class Clock:
    """Median seconds of a call, by events on a GPU."""

    def __init__(self, device, tiny):
        self.device = device
        self.samples = 1 if tiny else 11

    def once(self, call):
        if self.device == "cpu":
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e-3

    def median(self, call):
        self.once(call)
        return statistics.median(self.once(call) for _ in range(self.samples))


def backends():
    """The fastest first; which exist depends on PyTorch's build."""
    names = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    return [(name, getattr(SDPBackend, name)) for name in names if hasattr(SDPBackend, name)]


def attention(clock, q, k, v, causal):
    """Seconds of each flash backend that takes these shapes; the mathematical form only where none does."""
    grouped = q.shape[1] != k.shape[1]
    times = {}
    for name, backend in backends():
        if name == "MATH" and times:
            break

        def call(backend=backend):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

        try:
            times[name] = clock.median(call)
        except RuntimeError:  # this backend does not take these shapes, or the memory is short
            if clock.device != "cpu":
                torch.cuda.empty_cache()
    return times


def theirs(path):
    if not path:
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {(row[0], row[1]): float(row[2]) for row in rows if len(row) == 7 and not row[6]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    tiny = arguments.tiny
    if not torch.cuda.is_available() and not tiny:
        print("torch_twin.py: PyTorch sees no GPU", file=sys.stderr)
        return 2
    device = "cuda" if torch.cuda.is_available() else "cpu"
    clock = Clock(device, tiny)
    weir = theirs(arguments.values)
    deadline = time.monotonic() + arguments.seconds
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"\n## PyTorch {torch.__version__} on {card}\n")
    print("| what | size | backend | time | TFLOP/s | GB/s | Weir / PyTorch (speed) | aim |")
    print("|---|---|---|--:|--:|--:|--:|--:|")

    def row(name, size, backend, seconds, operations=0.0, size_bytes=0.0, aim=""):
        ours = weir.get((name, size))
        rate = f"{operations / seconds * 1e-12:.1f}" if operations else ""
        moved = f"{size_bytes / seconds * 1e-9:.0f}" if size_bytes else ""
        ratio = f"{seconds / ours:.2f}" if ours else ""
        print(f"| {name} | {size} | {backend} | {seconds * 1e3:.3f} ms | {rate} | {moved} | {ratio} | {aim} |", flush=True)

    def rand(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    def table(name, size, times, operations=0.0, size_bytes=0.0, aim=""):
        if not times:
            print(f"| {name} | {size} | none takes it | | | | | |")
        for backend, seconds in sorted(times.items(), key=lambda item: item[1]):
            row(name, size, backend, seconds, operations, size_bytes, aim)

    side = 64 if tiny else 8192
    a, b = rand(side, side), rand(side, side)
    row("bf16 product", f"{side} x {side} x {side}", "torch.matmul", clock.median(lambda: a @ b), 2.0 * side**3)
    del a, b

    for heads, kv_heads, dim in HEADS:
        for tokens in [33] if tiny else [2048, 16384, 131072]:
            if tokens > 16384 and dim != 64:
                continue
            size = f"{tokens} tokens, {heads}/{kv_heads} heads of {dim}"
            if time.monotonic() > deadline:
                print(f"| flash prefill | {size} | | skipped: no time left | | | | |")
                continue
            q, k, v = rand(1, heads, tokens, dim), rand(1, kv_heads, tokens, dim), rand(1, kv_heads, tokens, dim)
            operations = 4.0 * heads * dim * tokens * (tokens + 1) / 2
            table("flash prefill", size, attention(clock, q, k, v, True), operations, aim="0.60")
            del q, k, v
        sessions, depth = (2, 70) if tiny else (512, 1024)
        size = f"{sessions} sessions at {depth}, {heads}/{kv_heads} heads of {dim}"
        if time.monotonic() > deadline:
            print(f"| flash decode | {size} | | skipped: no time left | | | | |")
            continue
        q = rand(sessions, heads, 1, dim)
        k, v = rand(sessions, kv_heads, depth, dim), rand(sessions, kv_heads, depth, dim)
        size_bytes = 4.0 * sessions * depth * kv_heads * dim
        table("flash decode", size, attention(clock, q, k, v, False), size_bytes=size_bytes)
        del q, k, v
    return 0


if __name__ == "__main__":
    sys.exit(main())
