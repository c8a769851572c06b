"""What was learnt by tuning, of this problem and of those like it: whose schedules are tried first.

A problem that was tuned on this device gets what was fastest for it, and so does one that differs
from it in nothing that matters much. For others, schedules of CUDA devices are ranked by a model
(:mod:`~tilewright.select.ranking`), those for large filters, on tensor cores or not, by one of
their own (:mod:`~tilewright.select.large_filter_model`). Elsewhere the nearest neighbours among the
problems on record vote, weighted by distance: how many times slower than the fastest the schedule
most like it was there; the library's rule has a small vote. Candidates are those of the rule, and
what was fast for problems that are nearly the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.select.large_filter_model import ranked_large_filters
from tilewright.select.ranking import ranked
from tilewright.target import Target
from tilewright.topi.problem import Problem, Traits
from tilewright.topi.templates import TEMPLATES, candidates
from tilewright.tune.tuned import Ranked, Tuned, own, shipped

#: How many of the nearest problems vote, and how far away they may be.
_VOTES, _FAR = 10, 6.0
#: The predicted time of a schedule that was not among the fastest, over that of the slowest kept.
_ABSENT = 1.3
#: A schedule that differs by a factor of two in a parameter is predicted to be e to this slower.
_UNLIKE = 0.3
#: Problems this near to each other may take each other's parameters as they are.
_ALIKE = 0.5
#: Problems of the same images and filters this near to each other have the same fast schedules.
_TWINS = 0.5
#: The library's rule votes too, as a problem so far away would.
_RULE = 2.5
#: How many of the schedules voted for are tried.
_TRIED = 8


@dataclass(frozen=True)
class Guess:
    """A template with its parameters; ``seconds`` where this very problem was measured."""

    template: str
    config: Any
    seconds: float | None


def guesses(problem: Problem, target: Target, device: str) -> Iterator[Guess]:
    """From records, the best first: of this problem on this device, then of the nearest.

    Parameters
    ----------
    device : as :func:`~tilewright.tune.machine.machine` names it; empty where there is none.
    """
    mine, brought = own(target.kind), shipped(target.kind)
    here = [t for t in (*mine, *brought) if device and t.device == device]
    for tuned in here:
        if _as_dense(tuned.problem) == _as_dense(problem):
            yield from _measured(tuned, problem, target)
            break
    else:
        yield from _twins(problem, target, here)
    found = ranked_large_filters(problem, target) or ranked(problem, target, _TRIED)
    if found:
        yield from (Guess(r.template.name, r.config, None) for r in found[:_TRIED])
    else:
        yield from _voted(problem, target, device, [*mine, *brought])


@functools.lru_cache(8192)
def _as_dense(p: Problem) -> Problem:
    """The same with all operands given in each call, and dense: what is fast does not depend on
    which are, and hardly on gaps between their rows."""
    return p.replace(constants=(), strides=()) if p.constants or p.strides else p


def _twins(problem: Problem, target: Target, here: Sequence[Tuned]) -> Iterator[Guess]:
    """Of the nearest problem that differs at most in its batch, its epilogue and the like: of the
    same without an epilogue, where that is known, since epilogues cost little beside it."""
    mine = _traits(problem)
    known = [t for t in here if (_traits(t.problem).same, _traits(t.problem).twin)
             == (mine.same, mine.twin)]  # fmt: skip
    plain = problem.replace(epilogue=(), constants=(), strides=())
    near = min(
        known, key=lambda t: (t.problem != plain, distance(problem, t.problem)), default=None
    )
    if near is not None and distance(problem, near.problem) <= _TWINS:
        for guess in _measured(near, problem, target):
            yield Guess(guess.template, guess.config, None)


def _measured(tuned: Tuned, problem: Problem, target: Target) -> Iterator[Guess]:
    for best in tuned.best:
        config = _legal(best.template, best.values, problem, target)
        if config is not None:
            yield Guess(best.template, config, best.seconds)


def _voted(
    problem: Problem, target: Target, device: str, known: Iterable[Tuned]
) -> Iterator[Guess]:
    same = _traits(problem).same
    distances = sorted(
        (distance(problem, t.problem) + _machines(target, device, t), k, t)
        for k, t in enumerate(known)
        if _traits(t.problem).same == same
    )
    near = [(far, t.best) for far, _, t in distances[:_VOTES] if far <= _FAR]
    if not near:
        return
    ruled = _by_rule(problem, target)
    alike = [r for far, best in near if far <= _ALIKE for r in best]
    near.append((_RULE, ruled[:_TRIED]))
    slower = {
        (r.template, r.values): sum(_slower(r, best) / (0.1 + far) ** 2 for far, best in near)
        for r in (*ruled, *alike)
    }
    found = 0
    for template, values in sorted(slower, key=lambda place: (slower[place], place)):
        config = _legal(template, values, problem, target)
        if config is not None:
            yield Guess(template, config, None)
            found += 1
            if found == _TRIED:
                return


def _slower(one: Ranked, best: Sequence[Ranked]) -> float:
    """The logarithm of how much slower than the fastest a schedule is, by those most like it."""
    most = math.log(_ABSENT * best[-1].seconds / best[0].seconds)
    for r in best:
        if r.template == one.template:
            apart = sum(
                _weight(name) * abs(math.log2((1 + a) / (1 + b)))
                for (name, a), (_, b) in zip(one.values, r.values, strict=True)
            )
            most = min(most, math.log(r.seconds / best[0].seconds) + _UNLIKE * apart)
    return most


def _weight(name: str) -> float:
    """Numbers of threads follow from the shape, and are not what was learnt."""
    return 0.2 if name.startswith("threads") else 1.0


def _by_rule(problem: Problem, target: Target) -> tuple[Ranked, ...]:
    """What the library's rule prefers, as if each were a little slower than the one before."""
    return tuple(
        Ranked(template.name, tuple(sorted(asdict(config).items())), 1.0 + 0.03 * k)
        for k, (template, config) in enumerate(candidates(problem, target))
    )


def _legal(
    template: str, values: tuple[tuple[str, int], ...], problem: Problem, target: Target
) -> Any:
    """The parameters where the library has such a schedule for the problem, or None."""
    known = TEMPLATES.get(template)
    if known is None or not known.fits(problem, target):
        return None
    try:
        config = known.parse(dict(values))
        if config not in known.candidates(problem, target):
            known.scheduled(problem, config)
    except Exception:  # parameters of records may be anything
        return None
    return config


# -- distances -----------------------------------------------------------------------------------


def distance(a: Problem, b: Problem) -> float:
    """How unlike two problems are to a schedule: 0 for equal ones, infinite where they have no
    schedule in common, as those of other operators or passes."""
    x, y = _traits(a), _traits(b)
    if x.same != y.same:
        return math.inf
    far = sum(abs(m - n) for m, n in zip(x.sizes, y.sizes, strict=True))
    return far + sum(w for (w, m), (_, n) in zip(x.others, y.others, strict=True) if m != n)


@functools.lru_cache(8192)
def _traits(p: Problem) -> Traits:
    return p.traits()


def _machines(target: Target, device: str, tuned: Tuned) -> float:
    """How unlike two devices are: the same, of one generation, of one kind."""
    if device and tuned.device == device:
        return 0.0
    other = Target.parse(tuned.target).arch
    return 0.5 if _generation(target.arch) == _generation(other) else 1.0


def _generation(arch: str) -> str:
    """``sm_9`` of ``sm_90a``; other names are themselves."""
    digits = "".join(c for c in arch if c.isdigit())
    return f"sm_{digits[:-1]}" if arch.startswith("sm_") else arch
