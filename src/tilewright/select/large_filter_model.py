"""Schedules for large filters in the order in which they are predicted to be fast.

The taps of large filters bind every schedule for CUDA cores, and those for tensor cores differ by
how full their matrices are, by what is read again, and by what an SM has room for.
Regression trees, fitted by ``benchmarks/fit_large.py`` to what an H200 took, say how long each
takes, from what is known before it is compiled (:mod:`~tilewright.select.product_features`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.select.cost import DESCRIBED
from tilewright.select.counts import Array, parameters
from tilewright.select.product_features import product_features
from tilewright.select.products import COUNTED, NUMBERED, variant
from tilewright.select.ranking import Ranked, ranked, ranks, slower
from tilewright.select.trees import Forest, read
from tilewright.target import Target
from tilewright.target.devices import gpu
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template
from tilewright.topi.templates import TEMPLATES, templates

PATH = Path(__file__).parent / "large_filter_model.npz"
#: The one forest of the file.
NAME = "large"
#: Taps from which on products of matrices may be faster than anything else.
TAPS = 49
#: Schedules of a template for tensor cores that are looked at, in the order of its own rule, and
#: of all others, as :func:`~tilewright.select.ranking.ranked` has them.
_RULED, _RANKED = 12, 8
#: Ways in which schedules of a template may be written, at most.
_VARIANTS = 16


@cache
def model(path: Path = PATH) -> Forest:
    """The trees."""
    return read(path)[NAME]


def applies(p: Conv, target: Target) -> bool:
    """Whether there are products of matrices for a problem with a large filter."""
    return (
        ranks(target)
        and math.prod(p.kernel) >= TAPS
        and any(t.name not in DESCRIBED for t in _counted(p, target))
    )


def ranked_large_filters(p: Problem, target: Target) -> list[Ranked]:
    """The schedules that are worth a look, the best guess first; empty where the filter is small,
    or has no products of matrices on the target."""
    if not isinstance(p, Conv) or not applies(p, target):
        return []
    found = list(candidates(p, target))
    if not found:
        return []
    guessed = model().predict(np.concatenate([features(p, t, c, target) for t, c in found]))
    guessed -= guessed.min()
    every = [(TEMPLATES[t], config) for t, configs in found for config in configs]
    order = np.argsort(guessed, kind="stable").tolist()
    return [Ranked(every[k][0], every[k][1], float(guessed[k])) for k in order]


def candidates(p: Conv, target: Target) -> Iterator[tuple[str, list[Any]]]:
    """Templates with the parameters that are looked at, some of each; not those that are written
    in a way that nobody had measured when the trees were fitted."""
    kinds = set(model().kinds.tolist())
    for t in _counted(p, target):
        if t.name not in DESCRIBED:
            known = (c for c in t.candidates(p, target) if kind(t.name, c) in kinds)
            if some := list(islice(known, _RULED)):
                yield t.name, some
    others: dict[str, list[Any]] = {}
    for r in ranked(p, target, _RANKED):
        if r.template.name in COUNTED:
            others.setdefault(r.template.name, []).append(r.config)
    yield from others.items()


def kind(template: str, config: Any) -> int:
    """A number for a template and the way in which a schedule of it is written."""
    return NUMBERED.index(template) * _VARIANTS + min(_VARIANTS - 1, variant(template, config))


def features(
    p: Conv, template: str, configs: Sequence[Any], target: Target, apart: bool = True
) -> Array:
    """(configs, features) of a template's parameters; ``apart`` is as in
    :func:`~tilewright.select.features.features`."""
    late = np.zeros(len(configs))
    if template in DESCRIBED:
        late = slower(p, [(template, parameters(list(configs)))], target, apart)
    return product_features(p, template, configs, late, gpu(target.arch), apart)


def _counted(p: Conv, target: Target) -> list[Template]:
    return [t for t in templates(p, target) if t.name in COUNTED]
