"""Bank conflicts of shared memory: how often a warp takes turns."""

from __future__ import annotations

import numpy as np

from tilewright.target.devices import BANKS, WIDEST, WORD
from tilewright.topi.columns import Array


def bank_conflicts(address: Array, width: Array | int) -> Array:
    """(...): how many words of one bank threads read at once, each ``width`` (...) bytes, up to 16
    at a time, at ``address`` (..., threads); the same word counts once."""
    width = np.broadcast_to(width, address.shape[:-1]).reshape(-1, 1)
    count = max(1, int(min(width.max(initial=WORD), WIDEST) // WORD))
    first = (address.reshape(-1, address.shape[-1]) // WORD).astype("int64")
    inside = np.minimum(np.arange(count), np.maximum(width // WORD - 1, 0)).astype("int64")
    words = (first[:, :, None] + inside[:, None, :]).reshape(len(first), first.shape[1] * count)
    words.sort(axis=1)
    new = np.diff(words, axis=1, prepend=-1) != 0
    place = np.arange(len(words))[:, None] * BANKS + words % BANKS
    counts = np.bincount(place[new], minlength=len(words) * BANKS)
    return np.asarray(counts.reshape(-1, BANKS).max(axis=1).reshape(address.shape[:-1]))
