"""A tuner that learns how fast configurations are, and measures those it thinks fastest.

Source: Chen et al., "Learning to optimize tensor programs", NeurIPS 2018: a model of throughput,
simulated annealing on it, and a share of random candidates.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.tune.entity import TuningError
from tilewright.tune.estimate import cycles
from tilewright.tune.knob_features import KnobFeatures
from tilewright.tune.loop_features import loop_features
from tilewright.tune.model import CostModel, cost_model
from tilewright.tune.task import Task
from tilewright.tune.tuner import Pair, Tuner, check_positive

Array: TypeAlias = np.ndarray[Any, Any]

#: Spaces of up to this many configurations are predicted whole instead of walked through.
WHOLE = 20_000
#: How many models are fitted, each to the measurements with random weights: where they agree is
#: known well, and where they do not, each gets a share of the batch.
_MODELS = 3
#: A candidate that failed counts as this many times slower than the slowest that was right.
_FAILED = 4.0


#: How many measurements of other tasks are learnt from, random ones where there are more.
_REMEMBERED = 4000
#: Without measurements, the share of a batch that is random, and out of how many times as many
#: random ones the others are chosen.
_UNLIKELY, _DRAWN = 0.25, 4


class XGBTuner(Tuner):
    """Simulated annealing on a cost model that is fitted again after each batch.

    Parameters
    ----------
    plan_size : the model is first fitted after this number of measurements; without earlier
        records, the first ones are what is guessed from the loops to be fast, some of them random.
    feature_type : "knob", the configuration's choices, or "loop" (AutoTVM: "itervar"), which
        lowers the most promising candidates and ranks them once more by features of their loops;
        these carry over to other templates.
    loss_type : AutoTVM's; the model always regresses the logarithm of throughput.
    explore : the share of each batch that is random.
    model : "auto", "xgboost" or "numpy"; see :func:`~tilewright.tune.model.cost_model`.
    """

    def __init__(
        self,
        task: Task,
        plan_size: int = 8,
        feature_type: str = "knob",
        loss_type: str = "reg",
        num_threads: int | None = None,
        *,
        explore: float = 0.1,
        model: str = "auto",
        seed: int | None = None,
    ) -> None:
        super().__init__(task, seed=seed)
        if feature_type not in ("knob", "loop", "itervar"):
            raise TuningError(f"feature_type={feature_type!r}: there are knob and loop")
        self.plan_size = check_positive("plan_size", plan_size)
        self.by_loops = feature_type != "knob"
        self.explore = explore
        threads, number = num_threads or 1, seed or 0
        self.models = [cost_model(model, number + k, threads) for k in range(_MODELS)]
        self.loop_model: CostModel = cost_model(model, number, threads)
        self._features = KnobFeatures(task)
        self._small = self.space.range_length <= WHOLE or self.space.has_table
        self._whole: Array | None = None
        self._place: dict[int, int] = {}
        self._loops: dict[int, list[float] | None] = {}
        self._before: list[tuple[str, list[float] | None, list[float] | None, float]] = []
        self._fitted = self._loops_fitted = False

    # -- learning --------------------------------------------------------------------------------

    def transfer(self, found: Sequence[Pair]) -> None:
        """Learn from other shapes of this template, and by loops from other templates.

        Of each task, throughput counts relative to its best: how fast a shape can be is learnt
        again, what makes it fast is kept.
        """
        best: dict[str, float] = {}
        for inp, result in found:
            best[inp.task.key] = min(best.get(inp.task.key, math.inf), result.cost)
        for inp, result in found:
            top = best[inp.task.key]
            if not math.isfinite(top):
                continue
            row = None
            if inp.task.name == self.task.name:
                row = self._features.of(inp.task, inp.config)
            score = -math.log2(result.cost / top) if result.ok else -10.0
            self._before.append((inp.task.key, row, result.extra.get("features"), score))
        if len(self._before) > _REMEMBERED:
            kept = self.rng.choice(len(self._before), _REMEMBERED, replace=False)
            self._before = [self._before[k] for k in sorted(kept)]
        self._fit()

    def learn(self, found: Sequence[Pair]) -> None:
        for inp, result in found:
            features = result.extra.get("features")
            if features is not None:
                self._loops[inp.config.index] = features
        self._fit()

    def _fit(self) -> None:
        if len(self.visited) < self.plan_size and not self._before:
            return
        indices = list(self.visited)
        y = self._scores()
        x = self._of(indices)
        rows = [(r, score) for _, r, _, score in self._before if r is not None]
        # Problems of other epilogues or constants have other numbers of features.
        rows = [(r, score) for r, score in rows if len(r) == x.shape[1]]
        if not indices and not rows:
            return
        for model in self.models:
            self._fit_one(model, [*x.tolist(), *(r for r, _ in rows)],
                          [*y, *(score for _, score in rows)], len(indices))  # fmt: skip
        self._fitted = True
        if self.by_loops:
            known = [
                (features, y[k])
                for k, i in enumerate(indices)
                if (features := self._loops.get(i)) is not None
            ]
            past = [(f, score) for _, _, f, score in self._before if f is not None]
            if len(known) + len(past) > 1:
                self._fit_one(self.loop_model, [f for f, _ in (*known, *past)],
                              [s for _, s in (*known, *past)], len(known))  # fmt: skip
                self._loops_fitted = True

    def _fit_one(self, model: CostModel, x: list[list[float]], y: list[float], own: int) -> None:
        """What this run measured weighs more than what others did, the more there is of it."""
        weights = 0.1 + self.rng.exponential(size=len(y))
        weights[own:] /= 1.0 + own / 8.0
        model.fit(np.asarray(x, "float32"), np.asarray(y), weights)

    def _scores(self) -> list[float]:
        """The logarithm of throughput relative to the best, of ``visited`` in its order."""
        right = [c for c in self.visited.values() if math.isfinite(c)]
        best, slowest = min(right, default=1.0), max(right, default=1.0)
        failed = -math.log2(_FAILED * slowest / best)
        return [
            -math.log2(cost / best) if math.isfinite(cost) else failed
            for cost in self.visited.values()
        ]

    # -- proposing -------------------------------------------------------------------------------

    def propose(self, count: int) -> list[int]:
        if not self._fitted:
            return self._begin(count)
        random = int(self.rng.binomial(count, self.explore))
        wanted = count - random
        ranked = self._ranked(4 * wanted if self.by_loops else wanted)
        if self.by_loops:
            ranked = self._rank_by_loops(ranked)
        chosen = ranked[:wanted]
        taken = {*self.visited, *chosen}
        return chosen + self.space.sample(count - len(chosen), self.rng, taken)

    def _begin(self, count: int) -> list[int]:
        """Before anything was learnt: mostly what is thought fast without measuring, by the
        template's own order, else, for GPUs, by an estimate of random ones; the rest is random."""
        likely = int(self.rng.binomial(count, 1.0 - _UNLIKELY))
        chosen = [i for i in self.space.guesses if i not in self.visited][:likely]
        if self.task.target.is_gpu and not self.space.has_table:
            drawn = self.space.sample(_DRAWN * likely, self.rng, self.visited.keys())
            known = [(cycles(f), i) for i in drawn if (f := self._lowered(i)) is not None]
            chosen = [i for _, i in sorted(known)[:likely]]
        taken = {*self.visited, *chosen}
        return chosen + self.space.sample(count - len(chosen), self.rng, taken)

    def _ranked(self, count: int) -> list[int]:
        """The ``count`` unmeasured configurations that the models think fastest, in turns."""
        if self._small:
            indices = [i for i in self.space.indices() if i not in self.visited]
        else:
            indices = self._anneal(count)
        if not indices:
            return []
        x = self._of(indices)
        orders = [np.argsort(-m.predict(x), kind="stable")[:count] for m in self.models]
        turns = [indices[int(k)] for places in zip(*orders, strict=True) for k in places]
        return list(dict.fromkeys(turns))[:count]

    def _of(self, indices: Sequence[int]) -> Array:
        """The features of configurations; of a small space they are worked out once."""
        if not self._small:
            return self._features(indices)
        if self._whole is None:
            known = list(self.space.indices())
            self._whole = self._features(known)
            self._place = {index: k for k, index in enumerate(known)}
        return np.asarray(self._whole[[self._place[i] for i in indices]])

    def _anneal(self, count: int, chains: int = 128, steps: int = 100) -> list[int]:
        """Configurations that walks on the model came by, the best of them.

        The walks start from the fastest that were measured and from random ones; each step
        changes a knob, and is taken if it is better, or by chance while it is hot.
        """
        known = sorted((c, i) for i, c in self.visited.items() if math.isfinite(c))
        starts = [i for _, i in known[: chains // 4]]
        starts += self.space.sample(chains - len(starts), self.rng)
        here = starts

        def predict(indices: list[int]) -> Array:
            x = self._features(indices)
            return np.asarray(sum(m.predict(x) for m in self.models) / len(self.models))

        scores = predict(here)
        heap: dict[int, float] = dict(zip(here, scores.tolist(), strict=True))
        for step in range(steps):
            heat = 1.0 - step / steps
            moved = [self.space.random_walk(i, self.rng) for i in here]
            found = predict(moved)
            heap.update(zip(moved, found.tolist(), strict=True))
            worse = np.minimum(found - scores, 0.0)
            take = self.rng.random(len(here)) < np.exp(worse / max(heat, 1e-3))
            here = [m if t else h for m, h, t in zip(moved, here, take, strict=True)]
            scores = np.where(take, found, scores)
        fresh = [i for i in heap if i not in self.visited]
        fresh.sort(key=lambda i: -heap[i])
        return fresh[: 4 * count]

    def _rank_by_loops(self, indices: list[int]) -> list[int]:
        """The order of the model over loops; what cannot be lowered is left out, and marked."""
        rows, kept = [], []
        for index in indices:
            features = self._lowered(index)
            if features is None:
                continue
            rows.append(features)
            kept.append(index)
        if not rows:
            return indices
        if not self._loops_fitted:
            return kept
        scores = self.loop_model.predict(np.asarray(rows, "float32"))
        return [kept[int(k)] for k in np.argsort(-scores, kind="stable")]

    def _lowered(self, index: int) -> list[float] | None:
        if index not in self._loops:
            from tilewright.lower.pipeline import lower

            self._loops[index] = None
            with contextlib.suppress(TilewrightError):
                s, args = self.task.instantiate(self.space.get(index))
                self._loops[index] = loop_features(lower(s, args, self.task.target))
        return self._loops[index]
