"""Cost models: from the features of candidates to how fast they will be."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from tilewright.tune.boosted_trees import BoostedTrees

Array: TypeAlias = np.ndarray[Any, Any]


class CostModel(Protocol):
    """Learns the logarithm of throughput; greater is faster."""

    def fit(self, x: Array, y: Array, weights: Array | None = None) -> None:
        """Learn ``y`` (rows,) from ``x`` (rows, features)."""

    def predict(self, x: Array) -> Array:
        """(rows,) for ``x`` (rows, features)."""


class XGBoost:
    """xgboost's regression trees."""

    def __init__(self, seed: int = 0, threads: int = 1) -> None:
        import xgboost

        self._xgboost = xgboost
        self._booster: Any = None
        self._threads = threads
        self._options = {
            "max_depth": 5, "eta": 0.15, "min_child_weight": 1.0, "lambda": 1.0, "gamma": 1e-4,
            "objective": "reg:squarederror", "tree_method": "hist", "max_bin": 64,
            "verbosity": 0, "seed": seed, "nthread": threads,
        }  # fmt: skip

    def fit(self, x: Array, y: Array, weights: Array | None = None) -> None:
        data = self._xgboost.DMatrix(x, y, weight=weights, nthread=self._threads)
        self._booster = self._xgboost.train(self._options, data, num_boost_round=80)

    def predict(self, x: Array) -> Array:
        data = self._xgboost.DMatrix(x, nthread=self._threads)
        return np.asarray(self._booster.predict(data), "float64")


def cost_model(kind: str = "auto", seed: int = 0, threads: int = 1) -> CostModel:
    """xgboost where it is installed ("auto"), or "xgboost" or "numpy" as said.

    One thread is most often fastest, as the data is small. Raises :class:`TuningError` for other
    kinds, and where xgboost is asked for and missing.
    """
    from tilewright.tune.entity import TuningError

    if kind not in ("auto", "xgboost", "numpy"):
        raise TuningError(f"unknown cost model {kind!r}: there are auto, xgboost and numpy")
    if kind != "numpy":
        try:
            return XGBoost(seed, threads)
        except ImportError:
            if kind == "xgboost":
                raise TuningError(
                    "the cost model xgboost needs xgboost-cpu: pip install 'tilewright[tune]'"
                ) from None
    return BoostedTrees()
