"""Gradient-boosted regression trees on NumPy, for where xgboost is not installed.

Features are cut into at most 32 bins by their quantiles. All leaves of a level are split at once
from histograms of residuals; every leaf predicts the mean of its residuals, shrunk. Source:
Friedman, "Greedy function approximation: a gradient boosting machine", 2001, with histograms as in
LightGBM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


#: How many rows go down the trees at once, so that what they need stays in the cache.
_ROWS = 1024


@dataclass(frozen=True)
class _Tree:
    """A full binary tree: node k has children 2k+1 and 2k+2; leaves on the last level."""

    feature: Array  # of each inner node
    threshold: Array  # bins up to it go left
    values: Array  # of each leaf


class BoostedTrees:
    """``fit(x, y)``, then ``predict(x)``.

    Parameters
    ----------
    trees, depth, rate : how many trees, of how many levels, each shrunk by ``rate``.
    penalty : added to the count of each leaf, so that small ones say little.
    """

    def __init__(
        self, trees: int = 60, depth: int = 5, rate: float = 0.2, penalty: float = 1.0
    ) -> None:
        self.trees, self.depth, self.rate, self.penalty = trees, depth, rate, penalty
        self._edges: list[Array] = []
        self._made: list[_Tree] = []
        self._base = 0.0

    def fit(self, x: Array, y: Array, weights: Array | None = None) -> None:
        """Learn ``y`` (rows,) from ``x`` (rows, features)."""
        x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
        w = np.ones(len(y)) if weights is None else np.asarray(weights, "float64")
        self._edges = [_edges(x[:, f]) for f in range(x.shape[1])]
        bins = self._bins(x)
        self._base = float(np.average(y, weights=w)) if len(y) else 0.0
        self._made = []
        found = np.full(len(y), self._base)
        for _ in range(self.trees if len(y) > 1 else 0):
            tree, at = self._grow(bins, y - found, w)
            self._made.append(tree)
            found += tree.values[at]

    def predict(self, x: Array) -> Array:
        """(rows,) for ``x`` (rows, features)."""
        bins = self._bins(np.asarray(x, "float64"))
        if not self._made:
            return np.full(len(bins), self._base)
        parts = [self._walk(bins[k : k + _ROWS]) for k in range(0, len(bins), _ROWS)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _walk(self, bins: Array) -> Array:
        """Down all trees at once."""
        feature = np.stack([tree.feature for tree in self._made])
        threshold = np.stack([tree.threshold for tree in self._made])
        values = np.stack([tree.values for tree in self._made])
        trees, rows = np.arange(len(self._made))[None, :], np.arange(len(bins))[:, None]
        node = np.zeros((len(bins), len(self._made)), "int64")
        for _ in range(self.depth):
            right = bins[rows, feature[trees, node]] > threshold[trees, node]
            node = 2 * node + 1 + right
        return np.asarray(self._base + values[trees, node - (2**self.depth - 1)].sum(1))

    def _bins(self, x: Array) -> Array:
        found = np.zeros((len(x), max(1, len(self._edges))), "int64")
        for f, edges in enumerate(self._edges):
            found[:, f] = np.searchsorted(edges, x[:, f])
        return found

    def _grow(self, bins: Array, left_over: Array, w: Array) -> tuple[_Tree, Array]:
        rows, features = bins.shape
        size = int(bins.max(initial=0)) + 1
        feature = np.zeros(2**self.depth - 1, "int64")
        threshold = np.full(2**self.depth - 1, size)
        node = np.zeros(rows, "int64")  # within its level
        place = np.arange(features)[None, :] * size + bins
        for level in range(self.depth):
            count = 2**level
            cells = (node[:, None] * (features * size) + place).ravel()
            shape = (count, features, size)
            total = count * features * size
            weight = np.bincount(cells, np.repeat(w, features), total).reshape(shape)
            value = np.bincount(cells, np.repeat(w * left_over, features), total).reshape(shape)
            gain = self._gain(np.cumsum(weight, 2), np.cumsum(value, 2)).reshape(count, -1)
            best = gain.argmax(1)
            useful = gain[np.arange(count), best] > 1e-12
            first = count - 1
            feature[first : first + count] = best // size  # a cut of no use sends all left
            threshold[first : first + count] = np.where(useful, best % size, size)
            right = bins[np.arange(rows), feature[first + node]] > threshold[first + node]
            node = 2 * node + right
        leaves = 2**self.depth
        weight = np.bincount(node, w, leaves) + self.penalty
        values = self.rate * np.bincount(node, w * left_over, leaves) / weight
        return _Tree(feature, threshold, values), node

    def _gain(self, weight: Array, value: Array) -> Array:
        """How much each cut lowers the squared error; cumulative sums over the bins come in."""
        all_weight, all_value = weight[:, :, -1:], value[:, :, -1:]
        other_weight, other_value = all_weight - weight, all_value - value
        p = self.penalty
        gain = (
            value**2 / (weight + p)
            + other_value**2 / (other_weight + p)
            - all_value**2 / (all_weight + p)
        )
        return np.asarray(np.where((weight > 0) & (other_weight > 0), gain, 0.0))


def _edges(column: Array) -> Array:
    """Between which values to cut: quantiles, or all values where they are few."""
    values = np.unique(column)
    if len(values) > 32:
        values = np.unique(np.quantile(column, np.linspace(0, 1, 33)))
    return np.asarray((values[1:] + values[:-1]) / 2)
