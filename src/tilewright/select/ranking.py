"""Schedules of a GPU in the order in which they are predicted to be fast, for any problem.

Regression trees, fitted by ``benchmarks/fit_ranking.py`` to sweeps over schedules on an H200, say
by how much a schedule is slower than the best for a problem, from what is known of it before it is
compiled (:mod:`~tilewright.select.features`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.select.cost import DESCRIBED, cost
from tilewright.select.counts import Array, Cost, parameters
from tilewright.select.features import features, features_of
from tilewright.select.staged import Staged
from tilewright.select.trees import Forest, read
from tilewright.target import Target
from tilewright.target.devices import gpu
from tilewright.topi.columns import Tiles
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template
from tilewright.topi.templates import templates

PATH = Path(__file__).parent / "ranking.npz"
#: The trees of each template that rank all, and how many of the best all trees rank.
_FEW, _BEST = 40, 160
#: Multiplications written out in a kernel, beyond which compiling it takes seconds.
_CODE = 8192


@dataclass(frozen=True)
class Ranked:
    """A template with its parameters; ``slower`` is the logarithm of the time that it is thought
    to take by that of the best."""

    template: Template
    config: Any
    slower: float


@cache
def model(path: Path = PATH) -> dict[str, Forest]:
    """The trees of each template."""
    return read(path)


def ranks(target: Target) -> bool:
    """Whether schedules for a target can be ranked."""
    return target.kind == "cuda"


def ranked(p: Problem, target: Target, count: int | None = None) -> list[Ranked]:
    """The library's schedules for a problem, the best guess first, at most ``count``; those that do
    not fit the limits of the target are left out, and those written in a way that nobody measured.
    Empty where nothing is known of the target or the problem.
    """
    if not ranks(target) or not isinstance(p, Conv):
        return []
    known = [t for t in templates(p, target) if t.name in model()]
    found = [(t, *_fitting(p, t, t.candidates(p, target), target)) for t in known]
    found = [(t, configs, costs) for t, configs, costs in found if len(configs)]
    if not found:
        return []
    machine = gpu(target.arch)
    guessed = _slower([(t.name, features_of(p, costs, machine)) for t, _, costs in found])
    ends = np.cumsum([len(configs) for _, configs, _ in found])
    made = []
    for k in np.argsort(guessed, kind="stable")[:count].tolist():
        of = int(np.searchsorted(ends, k, side="right"))
        template, configs, _ = found[of]
        made.append(Ranked(template, configs[k - int(ends[of])], float(guessed[k])))
    return made


def slower(p: Conv, sets: list[tuple[str, Array]], target: Target, apart: bool = True) -> Array:
    """(sets of all templates,): the logarithm of each time by that of the best, as it is guessed;
    ``sets`` has (sets, parameters) of each template, ``apart`` is as in
    :func:`~tilewright.select.features.features`."""
    machine = gpu(target.arch)
    return _slower([(name, features(p, name, values, machine, apart)) for name, values in sets])


def _slower(seen: Sequence[tuple[str, Array]]) -> Array:
    """The same of the features of each template's parameters."""
    known, sizes = model(), [len(x) for _, x in seen]
    of = np.repeat(np.arange(len(seen)), sizes)
    guessed = np.concatenate([known[name].predict(x, 0, _FEW) for name, x in seen])
    best = np.argsort(guessed, kind="stable")[:_BEST]
    start = np.cumsum([0, *sizes])
    for k, (name, x) in enumerate(seen):
        rows = best[of[best] == k]
        guessed[rows] += known[name].predict(x[rows - start[k]], _FEW)
    if len(best) < len(guessed):  # the others stay behind those that were looked at closely
        others = np.ones(len(guessed), "bool")
        others[best] = False
        guessed[others] += max(0.0, guessed[best].max() - guessed[others].min())
    return np.asarray(guessed)


def fitting(
    p: Conv, template: Template, configs: Sequence[Any], target: Target, known: bool = True
) -> Sequence[Any]:
    """Those that keep to the limits of a target, and whose code is not very long: those written in
    a way that was measured when the trees were fitted, or else (not ``known``) the others."""
    return _fitting(p, template, configs, target, known)[0] if len(configs) else []


def _fitting(
    p: Conv, template: Template, configs: Sequence[Any], target: Target, known: bool = True
) -> tuple[Sequence[Any], Cost | Staged]:
    """The same with what they cost."""
    k, limits = cost(p, template.name, parameters(configs)), target.limits
    kinds: Sequence[int] = ()
    if template.name in model():
        kinds = model()[template.name].kinds.tolist()
    fits = (
        (k.threads <= limits.threads_per_block)
        & (k.shared <= limits.shared_memory)
        & (k.code <= _CODE)
        & (np.isin(k.kind, kinds) == known)
    )
    if isinstance(configs, Tiles):
        return configs.where(fits), k.where(fits)
    return [c for c, right in zip(configs, fits, strict=True) if right], k.where(fits)


def held(p: Problem, template: str, config: Any) -> float:
    """Registers of a thread for what it holds; 0 for a template that is not described."""
    if template not in DESCRIBED or not isinstance(p, Conv):
        return 0.0
    return float(cost(p, template, parameters([config])).held[0])


def unknown(p: Conv, target: Target) -> list[tuple[Template, Any]]:
    """The schedules for a problem that are described, but of which no tree knows anything: never
    chosen, but worth measuring; the templates in turn, each in its own order."""
    if not ranks(target):
        return []
    of = [
        [(t, c) for c in fitting(p, t, t.candidates(p, target), target, known=False)]
        for t in templates(p, target)
        if t.name in DESCRIBED
    ]
    return [one for turn in zip_longest(*of) for one in turn if one is not None]
