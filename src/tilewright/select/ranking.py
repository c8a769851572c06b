"""Schedules of a GPU in the order in which they are thought to be fast, for any problem.

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

from tilewright.select.counts import Array
from tilewright.select.features import features
from tilewright.select.gpus import gpu
from tilewright.select.trees import Forest, read
from tilewright.select.work import DESCRIBED, work
from tilewright.target import Target
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template
from tilewright.topi.templates import templates

PATH = Path(__file__).parent / "ranking.npz"
#: All are ranked by so many trees of each template, and the best so many of them by all trees.
_FEW, _BEST = 40, 250
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


def ranked(p: Problem, target: Target) -> list[Ranked]:
    """The library's schedules for a problem, the best guess first; those that do not fit the
    limits of the target are left out, and those written in a way that nobody measured. Empty where
    nothing is known of the target or the problem.
    """
    if not ranks(target):
        return []
    known = [t for t in templates(p, target) if t.name in model()]
    found = [(t, fitting(p, t, t.candidates(p, target), target)) for t in known]
    found = [(t, configs) for t, configs in found if configs]
    if not found:
        return []
    guessed = slower(p, [(t.name, parameters(configs)) for t, configs in found], target)
    every = [(t, config) for t, configs in found for config in configs]
    order = np.argsort(guessed, kind="stable").tolist()
    return [Ranked(every[k][0], every[k][1], float(guessed[k])) for k in order]


def parameters(configs: list[Any]) -> Array:
    """(sets, parameters) of a template's parameters."""
    return np.array([tuple(vars(c).values()) for c in configs], "float64")


def slower(p: Problem, sets: list[tuple[str, Array]], target: Target) -> Array:
    """(sets of all templates,): the logarithm of each time by that of the best, as it is guessed;
    ``sets`` has (sets, parameters) of each template."""
    machine, known = gpu(target), model()
    seen = [features(p, name, values, machine) for name, values in sets]
    of = np.repeat(np.arange(len(sets)), [len(x) for x in seen])
    guessed = np.concatenate(
        [known[n].predict(x, 0, _FEW) for (n, _), x in zip(sets, seen, strict=True)]
    )
    best = np.argsort(guessed, kind="stable")[:_BEST]
    start = np.concatenate([[0], np.cumsum([len(x) for x in seen])])
    for k, (name, _) in enumerate(sets):
        rows = best[of[best] == k]
        guessed[rows] += known[name].predict(seen[k][rows - start[k]], _FEW)
    if len(best) < len(guessed):  # the others stay behind those that were looked at closely
        others = np.setdiff1d(np.arange(len(guessed)), best, assume_unique=True)
        guessed[others] += max(0.0, guessed[best].max() - guessed[others].min())
    return np.asarray(guessed)


def fitting(
    p: Problem, template: Template, configs: list[Any], target: Target, known: bool = True
) -> list[Any]:
    """Those that keep to the limits of a target, and whose code is not very long: those written in
    a way that was measured when the trees were fitted, or else (not ``known``) the others."""
    if not configs:
        return []
    k, limits = work(p, template.name, parameters(configs)), target.limits
    kinds: Sequence[int] = ()
    if template.name in model():
        kinds = model()[template.name].kinds.tolist()
    fits = (
        (k.threads <= limits.threads_per_block)
        & (k.shared <= limits.shared_memory)
        & (k.code <= _CODE)
        & (np.isin(k.kind, kinds) == known)
    )
    return [c for c, right in zip(configs, fits, strict=True) if right]


def unknown(p: Problem, target: Target) -> list[tuple[Template, Any]]:
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
