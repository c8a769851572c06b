"""Fitted regression trees, as the package brings them: read, and gone down.

A file is a NumPy archive without pickles. Of each forest it has, of all nodes, tree after tree and
each tree's level after level, the ``feature`` that is compared, :data:`_LEAF` for a leaf; of those
that are no leaves the ``cut``, a number among those of their feature, of which ``values`` has all
in order, and ``many`` how many there are of each feature; of leaves what each ``adds``, in
:data:`STEP`; the ``root`` of each tree, and ``base``. A value below the cut goes to the left child,
any other to the one behind it. ``kinds`` are those that were measured
(:class:`~tilewright.select.cost.Cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

#: What leaves add is a multiple of this, so that files of them are small: what all are off by
#: together, a thousandth of a time or two, no order depends on.
STEP = 2.0**-14
#: In place of a leaf's feature.
_LEAF = 255
_PARTS = {"feature": "uint8", "cut": "uint16", "values": "float32", "many": "uint16",
          "adds": "int16", "root": "int32", "base": "float64", "kinds": "uint8"}  # fmt: skip
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
    feature, root = parts["feature"].astype("intp"), parts["root"].astype("intp")
    leaf = feature == _LEAF
    feature[leaf] = 0
    begin = np.repeat(root, np.diff(np.append(root, len(leaf))))
    before = np.cumsum(~leaf) - ~leaf  # splits, each of which has two children in their order
    left = np.where(leaf, np.arange(len(leaf)), begin + 1 + 2 * (before - before[begin]))
    first = np.cumsum(parts["many"]) - parts["many"]
    cut = np.full(len(leaf), np.inf, "float32")
    cut[~leaf] = parts["values"][first[feature[~leaf]] + parts["cut"]]
    adds = np.zeros(len(leaf), "float32")
    adds[leaf] = parts["adds"] * STEP
    return Forest(feature, cut, adds, left, root, float(parts["base"]), parts["kinds"])


def write(path: Path, forests: Mapping[str, Mapping[str, Array]]) -> None:
    """Write forests: of each ``feature``, -1 for leaves, and ``threshold`` of all nodes, in the
    order of :func:`read`, of leaves what they add, with ``root``, ``base`` and ``kinds``."""
    parts = {f"{n}/{k}": v for n, f in forests.items() for k, v in _packed(f).items()}
    np.savez_compressed(path, allow_pickle=False, **parts)


def _packed(f: Mapping[str, Array]) -> dict[str, Array]:
    feature, threshold = f["feature"], f["threshold"].astype("float32")
    splits = feature >= 0
    values = [np.unique(threshold[feature == k]) for k in range(int(feature.max()) + 1)]
    nodes = zip(feature[splits], threshold[splits], strict=True)
    cut = [np.searchsorted(values[k], t) for k, t in nodes]
    found = {
        "feature": np.where(splits, feature, _LEAF), "cut": np.array(cut, "int64"),
        "values": np.concatenate(values), "many": np.array([len(v) for v in values]),
        "adds": np.round(threshold[~splits] / STEP), "root": f["root"], "base": f["base"],
        "kinds": f["kinds"],
    }  # fmt: skip
    assert len(values) < _LEAF
    assert abs(found["adds"]).max() < 2**15
    return {name: np.asarray(found[name], kind) for name, kind in _PARTS.items()}
