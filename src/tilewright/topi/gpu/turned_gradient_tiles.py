"""The tiles worth trying for gradients by the filter whose operands are turned, best guess first.

The guess is that of :mod:`~tilewright.topi.gpu.plain_boxes` for the forward pass that takes the
gradient's place, in parts, and what it takes to copy both operands.
"""

from __future__ import annotations

import functools
import math

from tilewright.target.boxes import MOST_STEP
from tilewright.topi.gpu.box_lines import COPYING
from tilewright.topi.gpu.box_products import has_windows
from tilewright.topi.gpu.machine import MEMORY, sees_nothing
from tilewright.topi.gpu.plain_boxes import given, in_parts
from tilewright.topi.nn.turned_gradients import as_forward
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.problem import Problem

#: How long they take beside what is predicted.
_SHORTER = 0.93


def _suits(problem: Problem) -> bool:
    """Whether it is a gradient by the filter in TF32, in one group, of images of two dimensions
    with channels last, and of several taps, whose windows TMA can copy once images lie last."""
    if not isinstance(problem, Conv) or problem.pass_ != "wgrad" or problem.precision != "tf32":
        return False
    if problem.rank != 2 or not problem.channels_last or problem.groups > 1 or problem.is_depthwise:
        return False
    if max(*problem.stride, *problem.dilation) > MOST_STEP or sees_nothing(problem):
        return False
    return has_windows(as_forward(problem))


@functools.lru_cache(maxsize=64)
def turned_gradient_times(problem: Problem) -> dict[BoxProductTile, float]:
    """For :func:`~tilewright.topi.sketches.box_splits.schedule_box_splits`: tiles, and what they
    are predicted to take, in microseconds."""
    if not isinstance(problem, Conv) or not _suits(problem):
        return {}
    p = as_forward(problem)
    g = given(p, split=True, windows=True, beside=1)
    images = p.channels * (p.batch * math.prod(p.image) + p.out_channels * math.prod(p.kernel))
    copied = 2 * COPYING + 8 * images / MEMORY
    return {
        tile: _SHORTER * (copied + cost)
        for shape in g.shapes() for tile, cost in in_parts(g, shape, whole=True)
    }  # fmt: skip
