"""Weights from a hash of their name, the same in Python and in C++; nothing but scale and offset has to be stored.

value(i) of the tensor NAME (i: flat index, row-major), in double, then rounded to float32:
    h = FNV-1a, 64 bits, of NAME's bytes
    x = splitmix64(h + i)                       (one step from the state h + i, all modulo 2^64)
    u = (x >> 40) / 2^24                        in [0, 1)
    value = offset + scale * (2 u - 1)
"""

import numpy as np


def fnv1a(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return h


def splitmix64(states):
    """uint64 array of states to uint64 array of outputs."""
    z = states + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fill(name, shape, scale, offset):
    """float32 array."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = splitmix64(np.uint64(fnv1a(name)) + np.arange(count, dtype=np.uint64))
    u = (x >> np.uint64(40)).astype(np.float64) / 2.0**24
    return (offset + scale * (2 * u - 1)).astype(np.float32).reshape(shape)


def tokens(name, count, vocab):
    """Token ids of a case; the first is 0, and every fifth repeats the one two before it."""
    with np.errstate(over="ignore"):
        x = splitmix64(np.uint64(fnv1a(name)) + np.arange(count, dtype=np.uint64))
    ids = [int(v) for v in x % np.uint64(vocab)]
    ids[0] = 0
    for i in range(4, count, 5):
        ids[i] = ids[i - 2]
    return ids
