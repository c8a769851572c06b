"""Memory of the host for intermediate values, which calls of one model take in turn."""

from __future__ import annotations

import threading

import numpy as np

from tilewright.graph.constants import aligned

#: Bytes of the host.
Block = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Arenas:
    """Blocks of bytes: as many as calls run at one time, whatever shapes these are of, each as
    large as the largest that took it."""

    def __init__(self) -> None:
        self._free: list[Block] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Block:
        """A block of at least as many bytes, until it is given back."""
        with self._lock:
            found = self._free.pop() if self._free else None
        return found if found is not None and found.nbytes >= nbytes else aligned(nbytes)

    def give(self, block: Block) -> None:
        """Give one back."""
        with self._lock:
            self._free.append(block)
