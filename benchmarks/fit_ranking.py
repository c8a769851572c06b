"""Fit the trees that rank schedules nobody measured (``tilewright/select/ranking.npz``).

    python benchmarks/fit_ranking.py                        from the sweeps that are committed
    python benchmarks/fit_ranking.py --pack OLD.gz NEW.jsonl    add a sweep to them first
    python benchmarks/fit_ranking.py --check                only say how well it does

What is learnt is by how much a schedule is slower than the fastest for its problem, and, by as many
trees, than the least time that the problem takes, which compares problems with each other. How well
that goes is reported for problems whose shape was left out of the fit in every type, layout, pass
and filter: how often the first choice among the measured schedules is within 1.2 times the best of
them. A choice among all schedules may be better, or worse, than that.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import sweeps
import xgboost
from sweeps import Measured

from tilewright.select import trees
from tilewright.select.cost import DESCRIBED, cost
from tilewright.select.features import features, roofline
from tilewright.select.ranking import PATH
from tilewright.target import Target
from tilewright.target.devices import gpu
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES

Array: TypeAlias = np.ndarray[Any, Any]

TARGET = "cuda -arch=sm_90a"
MACHINE = gpu(Target.parse(TARGET).arch)
#: What is slower than the best by more than e to this is not told apart; what spilled is so slow.
_CLIP = 0.7
#: Schedules near the best count for more.
_NEAR = 4.0
#: Fits whose mean is taken, one half of them of each kind, and the trees of each.
_FITS, _TREES = 6, 190
_SETTINGS = {
    "objective": "reg:squarederror", "tree_method": "hist", "max_depth": 6, "eta": 0.1,
    "subsample": 0.7, "colsample_bytree": 0.35, "min_child_weight": 5, "lambda": 2,
    "max_bin": 64, "nthread": 1, "verbosity": 0,
}  # fmt: skip


class Table:
    """The schedules of one template for one problem, as a fit sees them."""

    def __init__(self, m: Measured, template: str) -> None:
        rows = m.tables[template]
        self.measured, self.template = m, template
        self.times, self.best = rows[:, -2], fastest(m)
        self.x = features(m.problem, template, rows[:, :-2], MACHINE, m.apart)
        slower = np.log(np.where(self.times > 0, self.times, np.inf) / self.best)
        self.y = np.minimum(slower, _CLIP)
        self.whole = self.y + np.log(self.best / roofline(m.problem, MACHINE))
        self.kinds = set(cost(m.problem, template, rows[:, :-2]).kind.astype(int).tolist())
        far = np.where(self.times > 0, np.minimum(slower, 2.0), _CLIP)
        self.weight = m.weight / (1 + _NEAR * far)
        own = self.times[self.times > 0].min(initial=np.inf)
        self.own = slower + np.log(self.best / own)
        self.complete = True


def fastest(m: Measured) -> float:
    """Microseconds of the fastest schedule that is described: others, for large filters, have trees
    of their own."""
    times = np.concatenate([rows[:, -2] for name, rows in m.tables.items() if name in DESCRIBED])
    return float(times[times > 0].min(initial=np.inf))


def shape(p: Conv) -> tuple[int, ...]:
    """What is left out together."""
    return (p.channels, p.height, p.width, *p.stride)


def read(measured: list[Measured]) -> list[Table]:
    """The tables of all templates that are described."""
    of = [m for m in measured if DESCRIBED & m.tables.keys() and np.isfinite(fastest(m))]
    return mark([Table(m, t) for m in of for t in m.tables if t in DESCRIBED])


def mark(tables: list[Table]) -> list[Table]:
    """Say of which problems not all templates were measured that others were measured with."""
    known = {t.template for t in tables}
    of: dict[Conv, set[str]] = {}
    for t in tables:
        p = t.measured.problem
        if p not in of:
            of[p] = {name for name in known if TEMPLATES[name].fits(p, Target.parse(TARGET))}
        t.complete = of[p] <= set(t.measured.tables)
    return tables


def fit(tables: list[Table], fits: int = _FITS) -> list[xgboost.Booster]:
    """For the schedules of one template."""
    relative = labels(tables)
    found = []
    for seed in range(fits):
        found.append(train(tables, [t.whole for t in tables] if seed % 2 else relative, seed))
    return found


def labels(tables: list[Table]) -> list[Array]:
    """By how much each schedule is slower than the fastest of its problem. Where templates are
    missing, that is guessed from what others teach: it may be far from the fastest of these."""
    sure = [t for t in tables if t.complete]
    if len(sure) in (0, len(tables)):
        return [t.y for t in tables]
    first = train(sure, [t.y for t in sure], _FITS)
    found = []
    for t in tables:
        if t.complete or not np.isfinite(t.own).any():
            found.append(t.y)
            continue
        near = np.where(t.own < _CLIP, np.exp(-_NEAR * t.own), 0)
        apart = np.average(guess([first], t.x) - np.minimum(t.own, _CLIP), weights=near)
        found.append(np.minimum(t.own + max(0.0, float(apart)), _CLIP))
    return found


def train(tables: list[Table], y: list[Array], seed: int) -> xgboost.Booster:
    x, weight = (np.concatenate([vars(t)[name] for t in tables]) for name in ("x", "weight"))
    label = np.concatenate(y)
    settings = {**_SETTINGS, "seed": seed, "base_score": float(np.average(label, weights=weight))}
    return xgboost.train(settings, xgboost.DMatrix(x, label, weight=weight, nthread=1), _TREES)


def guess(fitted: Sequence[xgboost.Booster], x: Array) -> Array:
    data = xgboost.DMatrix(x, nthread=1)  # a few rows: threads would take longer to begin
    mean: Array = np.mean([b.predict(data) for b in fitted], axis=0)
    return mean


def check(tables: list[Table], folds: int) -> dict[str, list[float]]:
    """By kind of problem, how many times slower than the best of those measured the first choice
    was, where shapes were left out in turn; of each problem, in its newest sweep."""
    shapes = sorted({shape(t.measured.problem) for t in tables})
    order = np.random.default_rng(0).permutation(len(shapes))
    fold = {shapes[s]: k % folds for k, s in enumerate(order)}
    newest: dict[Conv, int] = {}
    for t in tables:
        p = t.measured.problem
        newest[p] = max(newest.get(p, 0), t.measured.sweep)
    choices: dict[Conv, list[tuple[float, float]]] = defaultdict(list)
    for template in sorted({t.template for t in tables}):
        mine = [t for t in tables if t.template == template]
        for k in range(folds):
            held = [t for t in mine if fold[shape(t.measured.problem)] == k]
            known = [t for t in mine if fold[shape(t.measured.problem)] != k]
            fitted = fit(known) if held and known else []
            for t in held:
                if fitted and newest[t.measured.problem] == t.measured.sweep:
                    choices[t.measured.problem] += zip(guess(fitted, t.x), t.times, strict=True)
    found: dict[str, list[float]] = defaultdict(list)
    for p, known_times in choices.items():
        best = min(time for _, time in known_times if time > 0)
        _, time = min(known_times)
        for kind in ("all", p.dtype, p.layout, p.pass_, f"{p.pass_} {p.layout}", f"batch {p.batch}",
                     f"K {p.kernel_h}x{p.kernel_w}", f"stride {p.stride[0]}"):  # fmt: skip
            found[kind].append(time / best if time > 0 else np.inf)
    return found


def report(found: dict[str, list[float]]) -> None:
    print(f"{'left out':24} problems  within 1.1  within 1.2  within 1.5  mean")
    for kind in sorted(found, key=lambda k: (k != "all", k)):
        times = np.array(found[kind])
        shares = "".join(f"{np.mean(times <= most):11.0%} " for most in (1.1, 1.2, 1.5))
        mean = np.exp(np.log(np.minimum(times, 10)).mean())
        print(f"{kind:24} {len(times):8}{shares}{mean:6.3f}")


def arrays(fitted: list[xgboost.Booster]) -> dict[str, Array]:
    """Fits as one forest, their trees in turn, each leaf shared among the fits."""
    found: dict[str, list[Array]] = {"feature": [], "threshold": [], "root": []}
    models = [json.loads(bytes(b.save_raw("json")))["learner"] for b in fitted]
    bases = [float(str(m["learner_model_param"]["base_score"]).strip("[]")) for m in models]
    made = [m["gradient_booster"]["model"]["trees"] for m in models]
    place = 0
    for tree in (tree for turn in zip(*made, strict=True) for tree in turn):
        left = np.array(tree["left_children"], "int64")
        right = np.array(tree["right_children"], "int64")
        leaf, cut = left < 0, np.array(tree["split_conditions"], "float32")
        children = np.stack([left[~leaf], right[~leaf]], axis=1)
        if (children.ravel() != np.arange(1, len(left))).any():
            raise SystemExit("xgboost numbers its nodes in another way: level after level")
        found["feature"].append(np.where(leaf, -1, np.array(tree["split_indices"])))
        found["threshold"].append(np.where(leaf, cut / len(fitted), cut))
        found["root"].append(np.array([place]))
        place += len(left)
    return {**{k: np.concatenate(v) for k, v in found.items()}, "base": np.array(np.mean(bases))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", default=[sweeps.PACKED],
                        help="packed sweeps, or raw ones as FILE or FILE:WEIGHT")  # fmt: skip
    parser.add_argument("--pack", action="store_true", help="write them to the packed file")
    parser.add_argument("--device", default="NVIDIA H200", help="where they were measured")
    parser.add_argument("--check", action="store_true", help="do not write the trees")
    parser.add_argument("--folds", type=int, default=8, help="0 not to check")
    args = parser.parse_args()
    measured = sweeps.read(args.files)
    if args.pack:
        sweeps.pack(sweeps.PACKED, measured, args.device)
        measured = sweeps.read([sweeps.PACKED])
    tables = read(measured)
    print(f"{len(measured)} measured problems, {sum(len(t.times) for t in tables)} schedules")
    if args.folds:
        report(check(tables, args.folds))
    if args.check:
        return
    names = sorted({t.template for t in tables})
    forests = {}
    for name in names:
        mine = [t for t in tables if t.template == name]
        kinds = sorted(set().union(*(t.kinds for t in mine)))
        forests[name] = {**arrays(fit(mine)), "kinds": np.array(kinds)}
    trees.write(PATH, forests)
    print(f"wrote {PATH}, {PATH.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
