"""Fit the trees that choose schedules for large filters (``select/large_filter_model.npz``).

    python benchmarks/fit_large.py              from the tables that are committed
    python benchmarks/fit_large.py --check      only say how well it does
    python benchmarks/fit_large.py MORE.jsonl   from these too, as large_kernels.py and
                                                untuned_shapes.py write them (NAME-tried.jsonl)

How well it does is reported for problems left out in turn: the trees see the times of other
problems, order the schedules that were measured for this one, and the time of the first counts, by
that of the best. "problem" leaves one problem out, which may leave its mirror in: a forward pass
with stride 1 is the gradient by the input of another. "shape" leaves out all that have the same
image, channels and filter, in every pass, type and batch. "rule" is the first by the order of the
templates, which has learnt nothing, and "chance" any of those measured. What trees for CUDA cores
say of a schedule is a feature; here it is what trees say that have not seen its shape, for of new
shapes those that are shipped know as little.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import fit_ranking
import numpy as np
import sweeps
import xgboost
from sweeps import Measured

from tilewright.select import large_filter_model, trees
from tilewright.select.cost import DESCRIBED
from tilewright.select.counts import parameters
from tilewright.select.features import features
from tilewright.select.product_features import least, product_features
from tilewright.select.products import COUNTED
from tilewright.target import Target
from tilewright.target.devices import gpu
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES

Array: TypeAlias = np.ndarray[Any, Any]

TARGET = Target.parse("cuda -arch=sm_90a")
LARGE = Path(__file__).parent / "results" / "h200_large_sweep.json.gz"
#: By how much slower than the best, as a logarithm, is not told apart by half of the fits.
_CLIP = 1.0
#: Schedules near the best count for more, and of a problem with many schedules each for less.
_NEAR, _MANY = 4.0, 25
#: Fits with different random numbers, and the trees of each.
_FITS, _TREES = 6, 150
_SETTINGS = {
    "objective": "reg:squarederror", "tree_method": "hist", "max_depth": 8, "eta": 0.15,
    "subsample": 0.5, "colsample_bytree": 0.5, "min_child_weight": 2, "lambda": 1,
    "max_bin": 128, "nthread": 1, "verbosity": 0,
}  # fmt: skip
#: Parts of the shapes that trees for CUDA cores leave out in turn.
_PARTS = 4
#: Fits of each of these.
_LATE = 2
#: The shares that are reported are of problems within this many times the best.
WITHIN = (1.05, 1.1, 1.2)


class Unseen:
    """What trees for CUDA cores say of schedules whose shapes they have not seen."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        keys = sorted({shape(m.problem) for m in measured if _is_large(m.problem)})
        self._part = {key: k % _PARTS for k, key in enumerate(keys)}
        both = [m for m in measured if DESCRIBED & COUNTED & m.tables.keys()]
        tables = [t for t in fit_ranking.read(both) if t.template in COUNTED]
        self._fits = [
            {
                name: fit_ranking.fit(
                    [t for t in tables if t.template == name and not self._is(t, k)], _LATE
                )
                for name in sorted({t.template for t in tables})
            }
            for k in range(_PARTS)
        ]

    def _is(self, t: fit_ranking.Table, part: int) -> bool:
        return self._part.get(shape(t.measured.problem)) == part

    def __call__(self, p: Conv, template: str, configs: Sequence[Any], apart: bool) -> Array:
        if template not in DESCRIBED:
            return np.zeros(len(configs))
        x = features(p, template, parameters(list(configs)), gpu(TARGET.arch), apart)
        return fit_ranking.guess(self._fits[self._part[shape(p)]][template], x)


class Table:
    """The measured schedules of one problem, as a fit sees them.

    Attributes
    ----------
    schedules : a template with its parameters, each.
    times : microseconds.
    judged : whether it is among those that tell how well the fit does: one for which a product of
        matrices was measured.
    """

    def __init__(self, m: Measured, unseen: Unseen | None = None) -> None:
        p = self.problem = m.problem
        self.schedules, rows, times = [], [], []
        for name, table in m.tables.items():
            known = table[table[:, -2] > 0]
            if name in COUNTED and len(known):
                names = [f.name for f in fields(TEMPLATES[name].config)]
                configs = [
                    TEMPLATES[name].parse(dict(zip(names, map(int, row), strict=True)))
                    for row in known[:, :-2]
                ]
                self.schedules += [(name, c) for c in configs]
                if unseen is None:
                    rows.append(large_filter_model.features(p, name, configs, TARGET, m.apart))
                else:
                    late = unseen(p, name, configs, m.apart)
                    rows.append(product_features(p, name, configs, late, gpu(TARGET.arch), m.apart))
                times.append(known[:, -2])
        self.x, self.times = np.concatenate(rows), np.concatenate(times)
        self.slower = np.log(self.times / self.times.min())
        self.whole = np.log(self.times / least(p, gpu(TARGET.arch)))
        many = min(1.0, _MANY / len(self.times))
        self.weight = m.weight * many / (1 + _NEAR * np.minimum(self.slower, 2.0))
        self.judged = any(name not in DESCRIBED for name, _ in self.schedules)


def read(words: Sequence[str | Path], unseen: bool = True) -> list[Table]:
    """The large filters of files of sweeps with channels first, of each problem the sweep with
    schedules of most templates, and of such the newest; ``unseen`` as :class:`Unseen` has it, or
    else by the trees that are shipped."""
    measured = sweeps.read(words)
    fullest = {
        m.problem: m
        for m in sorted(measured, key=lambda m: (len(set(m.tables) & set(COUNTED)), m.sweep))
        if _is_large(m.problem)
    }
    late = Unseen(measured) if unseen else None
    return [Table(m, late) for m in fullest.values() if set(m.tables) & set(COUNTED)]


def _is_large(p: Conv) -> bool:
    return p.kernel_h * p.kernel_w >= large_filter_model.TAPS and not p.layout.endswith("C")


def shape(p: Conv) -> tuple[int, ...]:
    """What is left out together with a problem."""
    return (p.channels, *p.image, *p.kernel)


def fit(tables: Sequence[Table]) -> list[xgboost.Booster]:
    """Fits to times, which compare problems, and to how much slower than the best."""
    x = np.concatenate([t.x for t in tables])
    weight = np.concatenate([t.weight for t in tables])
    found = []
    for y in ([t.whole for t in tables], [np.minimum(t.slower, _CLIP) for t in tables]):
        data = xgboost.DMatrix(x, np.concatenate(y), weight=weight)
        settings = {**_SETTINGS, "base_score": float(np.average(data.get_label()))}
        found += [xgboost.train({**settings, "seed": k}, data, _TREES) for k in range(_FITS)]
    return found


def left_out(
    tables: Sequence[Table], key: Callable[[Conv], Any], folds: int, seed: int = 0
) -> dict[Conv, float]:
    """Times of first choices by the best, problems with one key in a fold together; which of them
    share a fold is drawn with ``seed``."""
    keys = sorted({key(t.problem) for t in tables})
    order = np.random.default_rng(seed).permutation(len(keys))
    fold = {keys[k]: place % folds for place, k in enumerate(order)}
    found = {}
    for k in range(folds):
        fitted = fit([t for t in tables if fold[key(t.problem)] != k])
        for t in tables:
            if t.judged and fold[key(t.problem)] == k:
                first = np.argmin(fit_ranking.guess(fitted, t.x))
                found[t.problem] = float(np.exp(t.slower[first]))
    return found


def by_rule(t: Table) -> float:
    """Of the first that was measured, templates taking turns."""
    from tilewright.topi.templates import candidates

    known = dict(zip(t.schedules, np.exp(t.slower), strict=True))
    order = ((template.name, c) for template, c in candidates(t.problem, TARGET))
    return float(next((known[s] for s in order if s in known), np.inf))


def kinds(p: Conv) -> list[str]:
    """The lines of the report that a problem counts in."""
    size = "K 7-9" if min(p.kernel) < 10 else "K 10-20" if min(p.kernel) < 20 else "K 20-"
    return ["all", p.pass_, p.dtype, f"{p.pass_} {p.dtype}", f"batch {p.batch}", size]


def report(found: dict[Conv, float], label: str) -> None:
    rows: dict[str, list[float]] = {}
    for p, slower in found.items():
        for kind in kinds(p):
            rows.setdefault(kind, []).append(slower)
    heads = "".join(f"  within {most}" for most in WITHIN)
    print(f"{label:20} problems{heads}  geometric mean")
    for kind in sorted(rows, key=lambda k: (k != "all", k)):
        shares = "".join(f"{np.mean(np.array(rows[kind]) <= most):13.0%}" for most in WITHIN)
        print(f"{kind:20} {len(rows[kind]):8}{shares}  {np.exp(np.log(rows[kind]).mean()):14.3f}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("more", nargs="*", help="other sweeps")
    parser.add_argument("--check", action="store_true", help="do not write the trees")
    parser.add_argument("--folds", type=int, default=10, help="0 not to check")
    args = parser.parse_args()
    tables = read([sweeps.PACKED, LARGE, *args.more])
    judged = [t for t in tables if t.judged]
    count = sum(len(t.times) for t in tables)
    print(f"{count} schedules for {len(tables)} problems, {len(judged)} of them judged\n")
    if args.folds:
        report(left_out(tables, str, args.folds), "problem left out")
        report(left_out(tables, shape, args.folds), "shape left out")
        report({t.problem: by_rule(t) for t in judged}, "rule")
        report({t.problem: float(np.exp(np.median(t.slower))) for t in judged}, "chance")
    if not args.check:
        kinds = sorted(
            {large_filter_model.kind(name, c) for t in tables for name, c in t.schedules}
        )
        trees.write(
            large_filter_model.PATH,
            {
                large_filter_model.NAME: {
                    **fit_ranking.arrays(fit(tables)),
                    "kinds": np.array(kinds),
                }
            },
        )
        print(f"wrote {large_filter_model.PATH}, {large_filter_model.PATH.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
