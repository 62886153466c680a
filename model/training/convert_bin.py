"""Write the safetensors that Weir reads beside a folder's pytorch_model.bin, whole or in shards.

    python convert_bin.py FOLDER [--out FOLDER] [--shard-bytes N]

Tensors keep their names, types and values. Two names for the same memory (a tied head) become the first name alone:
config.json says what is tied. Masks and other buffers that are not floats are left out and named. Files are loaded with
PyTorch's weights-only reader, which runs no code of theirs.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
BESIDE = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def bin_files(folder):
    index = folder / "pytorch_model.bin.index.json"
    if index.exists():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        for name in names:
            if Path(name).name != name:
                sys.exit(f"{index}: shard {name!r} is not a file of the same folder")
        return [folder / name for name in names]
    single = folder / "pytorch_model.bin"
    if not single.exists():
        sys.exit(f"{folder} has neither pytorch_model.bin nor pytorch_model.bin.index.json")
    return [single]


def read(files):
    """All float tensors by name, and the names that were left out, with the reason."""
    tensors, seen, left = {}, {}, {}
    for path in files:
        for name, tensor in torch.load(path, map_location="cpu", weights_only=True, mmap=True).items():
            if not isinstance(tensor, torch.Tensor):
                sys.exit(f"{path}: {name!r} is a {type(tensor).__name__}, not a tensor")
            if name in tensors:
                sys.exit(f"{path}: tensor {name!r} is in an earlier file too")
            if tensor.dtype not in FLOATS:
                left[name] = str(tensor.dtype)
                continue
            place = (path, tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape),
                     tensor.stride(), tensor.dtype)
            if place in seen and tensor.numel() > 0:
                left[name] = f"the same memory as {seen[place]}"
                continue
            seen[place] = name
            tensors[name] = tensor
    return tensors, left


def shards(tensors, limit):
    """Names in groups of at most `limit` bytes, one tensor at least."""
    groups, size = [[]], 0
    for name, tensor in tensors.items():
        if groups[-1] and size + tensor.nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += tensor.nbytes
    return groups


def write(tensors, out, limit):
    groups = shards(tensors, limit)
    names = ["model.safetensors"] if len(groups) == 1 else [
        f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors" for i in range(len(groups))]
    index = out / "model.safetensors.index.json"
    for path in [out / "model.safetensors", index, *(out / name for name in names)]:
        if path.exists():
            sys.exit(f"{path} exists already; remove it or choose another --out")
    weight_map = {}
    for name, group in zip(names, groups):
        # A copy of its own for each tensor: a view of a larger storage would be written whole or refused.
        save_file({key: tensors[key].contiguous().clone() for key in group}, out / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(group, name))
    if len(groups) > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1) + "\n")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="default: the folder itself; else its small files are copied too")
    parser.add_argument("--shard-bytes", type=int, default=5 << 30)
    args = parser.parse_args()
    out = args.out or args.folder
    tensors, left = read(bin_files(args.folder))
    if not tensors:
        sys.exit(f"{args.folder}: no float tensors")
    out.mkdir(parents=True, exist_ok=True)
    names = write(tensors, out, args.shard_bytes)
    if out != args.folder:
        for name in BESIDE:
            if (args.folder / name).exists():
                shutil.copyfile(args.folder / name, out / name)
    for name, why in sorted(left.items()):
        print(f"left out {name}: {why}")
    print(f"{len(tensors)} tensors in {', '.join(names)}")


if __name__ == "__main__":
    main()
