"""Which kernel a choice came to, kept beside the kernels: a warm start asks no model again, loads
no template, and makes no schedule to find what the cache has of it."""

from __future__ import annotations

import functools
import math
from pathlib import Path

from tilewright.ir.errors import TilewrightError
from tilewright.runtime import cache
from tilewright.runtime.build import find
from tilewright.runtime.cache_folder import folder
from tilewright.runtime.compile import resolve
from tilewright.runtime.kernel import Kernel
from tilewright.select.registry import registered
from tilewright.target import Target
from tilewright.topi.batch import Batch
from tilewright.topi.problem import Problem
from tilewright.tune.machine import machine_of, with_own_architecture
from tilewright.tune.records import default_path

#: What choices are made by, beside the compiler.
_PACKAGES = ("select", "topi", "tune", "graph")


def chosen_kernel(problem: Problem, target: Target, batch: Batch | None = None) -> Kernel | None:
    """The kernel of the first choice without measuring, of this library, that can be built, for all
    counts of a ``batch`` if there is one; None where there is none.

    It is remembered for as long as nothing changes that choices are made by: this program, other
    algorithms, the machine, and what was measured or tuned here. Raises as
    :func:`~tilewright.select.ahead.build_chosen`.
    """
    machine = resolve(with_own_architecture(target))
    files = cache.get(_place(problem, machine, batch), "key")
    if files is not None:
        found = find(files["key"].decode(), machine)
        if found is not None:
            return found
    from tilewright.select.ahead import build_chosen  # which loads all algorithms

    made = build_chosen(problem, target, "heuristic", batch, ours=True)
    if made is None:
        return None
    kernel, _ = made
    if kernel.key:  # with what choices are made by as it is now: the first one makes its files
        cache.put(_place(problem, machine, batch), {"key": kernel.key.encode()})
    return kernel


def predicted(problem: Problem, target: Target) -> float:
    """The microseconds that the kernel of a problem is predicted to take, remembered likewise; of
    none, or without a prediction, infinitely many."""
    machine = resolve(with_own_architecture(target))
    place = cache.digest("predicted", problem.key, repr(machine), _tag(), cache.compiler_tag())
    files = cache.get(place, "microseconds")
    if files is not None:
        return float(files["microseconds"])
    from tilewright.topi.templates import templates

    found = [t for t in templates(problem, machine) if t.priced]
    takes = min((t.price(problem, machine) for t in found), default=math.inf)
    cache.put(place, {"microseconds": repr(takes).encode()})
    return takes


def _place(problem: Problem, machine: Target, batch: Batch | None) -> str:
    try:
        here = machine_of(machine)
    except TilewrightError:  # code for a machine that this one is not
        here = ""
    known = " ".join(f"{a.name} {a.version}" for a in registered())
    root = folder()
    files = [default_path(), None if root is None else root / "select.sqlite"]
    state = [part for path in files if path is not None for part in _state(path)]
    of = () if batch is None else (repr(batch),)
    return cache.digest("chosen", problem.key, *of, repr(machine), here, _tag(), known, *state)


def _state(path: Path) -> tuple[str, str]:
    """Of a database: of its file, and how much was committed that is only in the log beside it."""
    log = cache.state_of(Path(f"{path}-wal")).partition(" ")[0]
    return cache.state_of(path), log if log != "0" else ""


@functools.cache
def _tag() -> str:
    return cache.tag_of(_PACKAGES)
