"""Fitted regression trees, as the package brings them: read, and gone down.

A file is a NumPy archive without pickles. Of each forest it has ``feature``, ``threshold`` and
``left`` of all nodes, tree after tree, ``root`` of each tree, and ``base``. A value below the
threshold goes to the left child, any other to the one behind it. A leaf is its own left child, and
its threshold is what it adds. ``kinds`` are those that were measured
(:class:`~tilewright.select.cost.Cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_PARTS = ("feature", "threshold", "left", "root", "base", "kinds")
#: How many rows go down at once, so that what they need stays in the cache.
_ROWS = 256


@dataclass(frozen=True)
class Forest:
    """Trees whose leaves add up. Arrays (nodes,): ``cut`` is the threshold, which nothing reaches
    in a leaf, and ``adds`` what a leaf adds; ``left`` counts from the first node of all."""

    feature: Array
    cut: Array
    adds: Array
    left: Array
    root: Array
    base: float
    kinds: Array

    def predict(self, x: Array, first: int = 0, last: int | None = None) -> Array:
        """(rows,): the sum over the trees from ``first`` to ``last`` for ``x`` (rows, features);
        that of the first trees includes the base."""
        root = self.root[first:last]
        found = np.full(len(x), 0.0 if first else self.base)
        if len(root):
            for k in range(0, len(x), _ROWS):
                found[k : k + _ROWS] += self._leaves(x[k : k + _ROWS], root)
        return found

    def _leaves(self, x: Array, root: Array) -> Array:
        flat, start = x.ravel(), np.arange(len(x))[:, None] * x.shape[1]
        node = np.repeat(root[None, :], len(x), axis=0)
        after, value = np.empty_like(node), np.empty(node.shape, x.dtype)
        while True:
            self.feature.take(node, out=after, mode="clip")  # checks nothing
            after += start
            flat.take(after, out=value, mode="clip")
            right = value >= self.cut.take(node, mode="clip")
            self.left.take(node, out=after, mode="clip")
            after += right
            if (after == node).all():
                return np.asarray(self.adds.take(node).sum(1))
            node, after = after, node


def read(path: Path) -> dict[str, Forest]:
    """The forests of a file, by name."""
    with np.load(path, allow_pickle=False) as file:
        names = sorted({key.rpartition("/")[0] for key in file.files})
        return {name: _forest({part: file[f"{name}/{part}"] for part in _PARTS}) for name in names}


def _forest(parts: Mapping[str, Array]) -> Forest:
    # NumPy indexes with these, and makes them of others every time.
    feature, left, root = (parts[n].astype("intp") for n in ("feature", "left", "root"))
    left = left + np.repeat(root, np.diff(np.append(root, len(left))))
    leaf = left == np.arange(len(left))
    threshold = parts["threshold"].astype("float32")
    cut = np.where(leaf, np.float32(np.inf), threshold)
    return Forest(feature, cut, threshold, left, root, float(parts["base"]), parts["kinds"])


def write(path: Path, forests: Mapping[str, Mapping[str, Array]]) -> None:
    """Write the arrays of forests; ``left`` counts from the root of its tree."""
    small = {"feature": "uint8", "threshold": "float32", "left": "uint16", "root": "int32",
             "base": "float64", "kinds": "uint8"}  # fmt: skip
    parts = {f"{n}/{p}": np.asarray(f[p], small[p]) for n, f in forests.items() for p in _PARTS}
    np.savez_compressed(path, allow_pickle=False, **parts)
