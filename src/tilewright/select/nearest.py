"""What was tuned of problems like one that was not: whose schedules are tried first.

Schedules are ranked by a vote of the nearest problems on record, near ones weighing more: how many
times slower than the fastest each schedule was there. A schedule counts only where the library can
write it for the problem at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.topi.declare import declare
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES
from tilewright.tune.tuned import Tuned, own, shipped

#: So many of the nearest problems vote, those up to so far away.
_VOTES, _FAR = 6, 6.0
#: What a schedule is thought to be that was not among the fastest: so many times the slowest kept.
_ABSENT = 1.3
#: So many of the schedules voted for are tried.
_TRIED = 8
#: How far apart two problems are that differ in what has no measure.
_APART = {"kernel": 1.5, "stride": 2.0, "dilation": 2.0, "bytes": 2.0, "dtype": 0.2, "rank": 2.0,
          "layout": 4.0, "multiplier": 2.0, "accumulate": 0.5, "precision": 0.3,
          "deterministic": 0.1, "padding": 0.1, "epilogue": 0.2}  # fmt: skip


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
    for known in (mine, brought):
        for tuned in known:
            if device and tuned.device == device and tuned.problem == problem:
                yield from _measured(tuned, problem, target)
                return
    yield from _voted(problem, target, device, [*mine, *brought])


def _measured(tuned: Tuned, problem: Problem, target: Target) -> Iterator[Guess]:
    for ranked in tuned.best:
        config = _legal(ranked.template, ranked.values, problem, target)
        if config is not None:
            yield Guess(ranked.template, config, ranked.seconds)


def _voted(
    problem: Problem, target: Target, device: str, known: Iterable[Tuned]
) -> Iterator[Guess]:
    near = sorted(
        ((distance(problem, t.problem) + _machines(target, device, t), k, t)
         for k, t in enumerate(known)),
    )[:_VOTES]  # fmt: skip
    near = [(far, k, t) for far, k, t in near if far <= _FAR]
    slower: dict[tuple[str, Any], float] = {}
    places = {(r.template, r.values) for _, _, t in near for r in t.best}
    weight = 0.0
    for far, _, tuned in near:
        vote = 1.0 / (0.1 + far) ** 2
        weight += vote
        times = {(r.template, r.values): r.seconds for r in tuned.best}
        least, most = min(times.values()), max(times.values())
        for place in places:
            seconds = times.get(place, most * _ABSENT)
            slower[place] = slower.get(place, 0.0) + vote * math.log(seconds / least)
    found = 0
    for template, values in sorted(slower, key=lambda place: (slower[place], place)):
        config = _legal(template, values, problem, target)
        if config is not None:
            yield Guess(template, config, None)
            found += 1
            if found == _TRIED:
                return


def _legal(
    template: str, values: tuple[tuple[str, int], ...], problem: Problem, target: Target
) -> Any:
    """The parameters where the library has such a schedule for the problem, else None."""
    known = TEMPLATES.get(template)
    if known is None or not known.fits(problem, target):
        return None
    try:
        config = known.parse(dict(values))
        if config not in known.candidates(problem, target):
            known.schedule(declare(problem), config)
    except TilewrightError:
        return None
    return config


# -- distances -----------------------------------------------------------------------------------


def distance(a: Problem, b: Problem) -> float:
    """How unlike two problems are to a schedule: 0 for equal ones, infinite between passes.

    Sizes count by their logarithms; what divides the extent that vectors run along counts too.
    """
    if a.pass_ != b.pass_:
        return math.inf
    last = a.layout.endswith("C")
    far = 0.0
    for x, y, weight in (
        (a.out_image[0], b.out_image[0], 0.7),
        (a.out_image[1], b.out_image[1], 0.5 if last else 1.0),
        (a.channels, b.channels, 0.7 if last else 0.3),
        (a.batch, b.batch, 0.3),
        (a.kernel_h, b.kernel_h, 1.5),
        (a.kernel_w, b.kernel_w, 1.5),
        (_divides(a, last), _divides(b, last), 0.7),
        (_outputs(a), _outputs(b), 0.2),
    ):
        far += weight * abs(math.log2(x / y))
    return far + sum(_APART[name] for name in _APART if _kind(name, a) != _kind(name, b))


def _divides(p: Problem, last: bool) -> int:
    """The largest power of two up to 16 that divides the innermost extent."""
    return math.gcd(16, p.channels if last else p.width)


def _outputs(p: Problem) -> int:
    return p.batch * p.out_channels * p.out_image[0] * p.out_image[1]


def _kind(name: str, p: Problem) -> Any:
    match name:
        case "bytes":
            return dtype(p.dtype).bytes
        case "layout":
            return p.layout.endswith("C")
        case "epilogue":
            return tuple(step.name for step in p.epilogue)
    return getattr(p, name)


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
