"""The tiles worth trying for gradients by the filter of which one operand is turned, best first.

The guess is that of :mod:`~tilewright.topi.gpu.produced_gradients`, and the copy before.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from tilewright.topi.gpu.box_lines import COPYING
from tilewright.topi.gpu.machine import MEMORY, sees_nothing
from tilewright.topi.gpu.produced_gradients import RATES, Sums, bytes_moved
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.turned_gradients import copied, turns_grad
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.topi.problem import Problem

#: Those of TF32; and registers of a thread for what it multiplies.
_TURNED = replace(
    RATES, products=0.78, narrow=18.0, begin=1.9, step=0.35, asked=0.094, stored=36_000,
    launch=1.4, power=2.24,
)  # fmt: skip
_HELD = 16


def _suits(problem: Problem) -> bool:
    """Whether it is a gradient by the filter in TF32, in one group, of images of two dimensions
    with channels last."""
    if not isinstance(problem, Conv) or problem.pass_ != "wgrad" or problem.precision != "tf32":
        return False
    if problem.rank != 2 or not problem.channels_last or problem.groups > 1 or problem.is_depthwise:
        return False
    chunk = widths(problem.dtype).chunk
    either = problem.channels % chunk == 0 or problem.out_channels % chunk == 0
    return either and not sees_nothing(problem)


@functools.lru_cache(maxsize=64)
def copied_gradient_times(p: Problem) -> dict[BoxGradientTile, float]:
    """For :func:`~tilewright.topi.sketches.copied_gradient.schedule_copied_gradient`: tiles, and
    what they are predicted to take, in microseconds."""
    if not isinstance(p, Conv) or not _suits(p):
        return {}
    before = COPYING + 8 * copied(p) / MEMORY
    return {tile: before + cost for tile, cost in _sums(p).tiles()}


def _sums(p: Conv) -> Sums:
    """What is summed."""
    rows, columns = p.out_channels, p.channels
    if turns_grad(p):
        rows, columns = columns, rows
    w = widths(p.dtype)
    return Sums(
        bytes_moved(p, p), rows, columns, math.prod(p.kernel),
        math.prod(p.out_image) * w.filled(p.batch) // w.step(p.batch), _TURNED,
        alone=not turns_grad(p), row=w.row, held=_HELD,
    )  # fmt: skip
