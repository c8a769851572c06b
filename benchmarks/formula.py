"""How good choices by one formula are beside those by the trees of ``select``.

    python benchmarks/formula.py                 of the sweeps that are committed
    python benchmarks/formula.py NAME-tried.jsonl.gz     and how far fits to these carry to a table

The formula is that of :mod:`~tilewright.select.features`: the longest of what instructions, caches
and memory take, and of what copies take where tiles are staged, with what waits for it. It is tried
alone; with a factor for each template; with one linear model on what is left, of the logarithms of
what it is made of; and with one forest on what is left for all templates, small and as large as the
trees that are shipped. Beside these stand such trees, of which each template has its own. All that
is fitted is fitted to problems of other shapes than those that are judged. What counts is the time
of the first choice among the schedules that were measured, by that of the best.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import fit_ranking
import numpy as np
import sweeps
import xgboost
from fit_ranking import Table, shape

from tilewright.select.cost import DESCRIBED
from tilewright.topi.operators.conv import Conv

Array: TypeAlias = np.ndarray[Any, Any]
#: What is fitted to tables: how slow the schedules of one are, as logarithms, in any unit.
Fitted: TypeAlias = Callable[[Table], Array]

#: Columns of features: those that all templates have, and that of the formula among them; of the
#: problem; the last, parameters; and where tiles are staged, before these, of how copies and
#: computing overlap, among them the time of all turns.
_COMMON, _ROUGH, _PROBLEM, _TILE, _STAGED, _TURN = 44, 6, 10, 8, 11, 8
_NUMBER = {name: k for k, name in enumerate(DESCRIBED)}
_RIDGE, _FOLDS = 1e-3, 4


def formula(t: Table) -> Array:
    """The logarithm of the time by the least that the problem takes."""
    rough = t.x[:, _ROUGH]
    if _is_staged(t):
        rough = np.maximum(rough, t.x[:, -_TILE - _STAGED + _TURN])
    return np.asarray(rough, "float64") * np.log(2)


def _is_staged(t: Table) -> bool:
    # Of templates that do not stage their tiles there are at most nine columns of room to spare.
    return t.x.shape[1] >= _COMMON + _PROBLEM + _STAGED + _TILE + 1


def left(t: Table) -> Array:
    """What the formula leaves to explain, up to where schedules are not told apart."""
    return t.whole - formula(t)


def columns(t: Table) -> Array:
    """What is the same of all templates, and which one it is."""
    staged = t.x[:, -_TILE - _STAGED : -_TILE] if _is_staged(t) else np.full((len(t.x), _STAGED), 0)
    problem = t.x[:, t.x.shape[1] - _TILE - _STAGED * _is_staged(t) - _PROBLEM :][:, :_PROBLEM]
    which = np.zeros((len(t.x), len(_NUMBER)))
    which[:, _NUMBER[t.template]] = 1
    return np.concatenate([t.x[:, :_COMMON], problem, staged, which], axis=1)


def alone(tables: Sequence[Table]) -> Fitted:
    return formula


def by_template(tables: Sequence[Table]) -> Fitted:
    off = {
        name: np.median(np.concatenate([left(t) for t in tables if t.template == name]))
        for name in {t.template for t in tables}
    }
    return lambda t: formula(t) + off[t.template]


def linear(tables: Sequence[Table]) -> Fitted:
    x, y = np.concatenate([columns(t) for t in tables]), np.concatenate([left(t) for t in tables])
    weight = np.sqrt(np.concatenate([t.weight for t in tables]))[:, None]
    mean, scale = x.mean(0), x.std(0) + 1e-6
    a = weight * np.c_[(x - mean) / scale, np.ones(len(x))]
    solved = np.linalg.solve(
        a.T @ a + _RIDGE * len(x) * np.eye(a.shape[1]), a.T @ (weight[:, 0] * y)
    )
    return lambda t: formula(t) + np.c_[(columns(t) - mean) / scale, np.ones(len(t.x))] @ solved


def forest(tables: Sequence[Table], trees: int, depth: int) -> Fitted:
    x, y = np.concatenate([columns(t) for t in tables]), np.concatenate([left(t) for t in tables])
    weight = np.concatenate([t.weight for t in tables])
    settings = {**fit_ranking._SETTINGS, "max_depth": depth, "seed": 0,
                "base_score": float(np.average(y, weights=weight))}  # fmt: skip
    found = xgboost.train(settings, xgboost.DMatrix(x, y, weight=weight, nthread=1), trees)
    return lambda t: formula(t) + fit_ranking.guess([found], columns(t))


def own_trees(tables: Sequence[Table]) -> Fitted:
    """As they are shipped."""
    fits = {
        name: fit_ranking.fit([t for t in tables if t.template == name])
        for name in sorted({t.template for t in tables})
    }
    return lambda t: fit_ranking.guess(fits[t.template], t.x)


FITS: dict[str, Callable[[Sequence[Table]], Fitted]] = {
    "formula": alone,
    "and a factor a template": by_template,
    "and one linear model": linear,
    "and 100 trees of depth 6": functools.partial(forest, trees=100, depth=6),
    "and 400 trees of depth 8": functools.partial(forest, trees=400, depth=8),
    "trees of each template": own_trees,
}


def left_out(tables: Sequence[Table], folds: int) -> dict[str, dict[Conv, float]]:
    """By fit, the time of the first choice by the best, of each problem in its newest sweep."""
    keys = sorted({shape(t.measured.problem) for t in tables})
    order = np.random.default_rng(0).permutation(len(keys))
    fold = {keys[s]: k % folds for k, s in enumerate(order)}
    newest: dict[Conv, int] = {}
    for t in tables:
        p = t.measured.problem
        newest[p] = max(newest.get(p, 0), t.measured.sweep)
    found: dict[str, dict[Conv, float]] = {name: {} for name in FITS}
    for k in range(folds):
        known = [t for t in tables if fold[shape(t.measured.problem)] != k]
        held: dict[Conv, list[Table]] = {}
        for t in tables:
            p = t.measured.problem
            if fold[shape(p)] == k and newest[p] == t.measured.sweep:
                held.setdefault(p, []).append(t)
        for name, fit in FITS.items():
            begin, fitted = time.monotonic(), fit(known)
            for p, own in held.items():
                slow = np.concatenate([fitted(t) for t in own])
                times = np.concatenate([t.times for t in own])
                ran = times > 0
                first = float(times[ran][np.argmin(slow[ran])])
                found[name][p] = first / float(times[ran].min())
            print(f"fold {k}, {name}: {time.monotonic() - begin:.0f} s", flush=True)
    return found


def report(found: Mapping[str, Mapping[Conv, float]]) -> None:
    limits = (1.02, 1.1, 1.2, 1.5)
    heads = "".join(f"{f'within {most}':>13}" for most in limits)
    print(f"{'first choice by':28} problems   mean {heads}")
    for name, slower in found.items():
        ratios = np.array(list(slower.values()))
        mean = np.exp(np.log(np.minimum(ratios, 10)).mean())
        shares = "".join(f"{np.mean(ratios <= most):13.1%}" for most in limits)
        print(f"{name:28} {len(ratios):8} {mean:6.3f} {shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", default=[sweeps.PACKED])
    parser.add_argument("--folds", type=int, default=_FOLDS)
    arguments = parser.parse_args()
    tables = fit_ranking.read(sweeps.read(arguments.files))
    found = left_out(tables, arguments.folds)
    report(found)
    for key in ("forward", "dgrad", "wgrad"):
        print(key)
        report({n: {p: r for p, r in f.items() if p.pass_ == key} for n, f in found.items()})


if __name__ == "__main__":
    main()
