"""Rolling buffers: a stage keeps, from one iteration of a loop to the next, what both need.

The three input rows of each output row of a filter are rows ``r`` to ``r + 2``: two of them were
there in the iteration before. A rolling stage is computed in two parts, which cover the same as all
iterations together would::

    warm: rows 0 and 1              # before the loop, all but what the first iteration adds
    for r:
        next: row r + 2             # in the loop, what each iteration adds
        uses rows r to r + 2

The buffer holds what all iterations need. Where the loop is unrolled and the buffer is in registers
no more of it is ever alive than one iteration needs, and nothing is moved. A stage that is to be
computed ahead has as many more rows in its warm part, and the last iterations add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import Analyzer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add, const, sub
from tilewright.ir.stmt import ForKind
from tilewright.ir.visit import substitute
from tilewright.schedule.stage import Stage

Interval = tuple[tuple[Expr, ...], tuple[Expr, ...]]


@dataclass(frozen=True)
class Rolling:
    """Parts of a tensor as least indices and extents: what is computed before the loop, what in
    each iteration up to ``last``, and what the buffer holds."""

    warm: Interval
    next: Interval
    kept: Interval
    last: Expr


def rolling(
    analyzer: Analyzer, stage: Stage, leaf: IterVar, var: Var, extent: Expr, needed: Interval
) -> Rolling | None:
    """The parts of a stage of which the iterations of ``leaf``, over ``var``, need ``needed``.

    None where consecutive iterations have nothing in common. Raises :class:`LoweringError` where
    what an iteration adds is not the same number of rows in one dimension.
    """
    mins, shape = needed
    mark = stage.attachment.stage.marks.get(leaf) if stage.attachment.stage else None
    if mark is not None and mark.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
        raise _refused(stage, leaf, "the iterations of that axis do not follow one another")
    if not isinstance(extent, IntImm):
        raise _refused(stage, leaf, f"how often that axis is run, {extent}, is not known")
    one: dict[Expr, Expr] = {var: add(var, 1)}
    steps = [analyzer.simplify(sub(substitute(lo, one), lo)) for lo in mins]
    moving = [k for k, step in enumerate(steps) if not isinstance(step, IntImm) or step.value]
    if not moving or extent.value == 1:
        return None
    step, size = steps[moving[0]], shape[moving[0]]
    if len(moving) > 1 or not isinstance(step, IntImm) or step.value < 0:
        raise _refused(
            stage, leaf, "from one iteration to the next, it needs more than further rows of it"
        )
    if not isinstance(size, IntImm) or step.value >= size.value:
        return None
    ahead = min(stage.ahead, extent.value - 1)
    d, overlap = moving[0], size.value + (ahead - 1) * step.value
    first = tuple(analyzer.simplify(substitute(lo, {var: const(0)})) for lo in mins)
    added = analyzer.simplify(add(mins[d], overlap))
    return Rolling(
        (first, _with(shape, d, const(overlap))),
        (_with(mins, d, added), _with(shape, d, const(step.value))),
        (first, _with(shape, d, const(overlap + step.value * (extent.value - ahead)))),
        sub(extent, ahead),
    )


def check_sources(stage: Stage, producers: list[Stage]) -> None:
    """A rolling stage is computed in two places: what it reads must be there in both."""
    at = stage.attachment
    for producer in producers:
        other = producer.attachment
        if other.kind == "at" and (other.stage is stage or other.axis is at.axis):
            raise stage.contradiction(
                f"rolling_buffer: what it reads, {producer.name!r}, is computed inside of the loop",
                at.axis,
                f"Compute {producer.name} further out, or inline it",
                at.where,
            )


def _with(values: tuple[Expr, ...], k: int, value: Expr) -> tuple[Expr, ...]:
    return (*values[:k], value, *values[k + 1 :])


def _refused(stage: Stage, leaf: IterVar, why: str) -> LoweringError:
    return stage.contradiction(
        f"rolling_buffer: {why}",
        leaf,
        "Compute the stage at a serial or unrolled axis over rows of its consumer, or do without "
        "rolling_buffer",
        stage.lines["rolling_buffer"],
    )
