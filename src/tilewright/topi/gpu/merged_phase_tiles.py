"""The tiles worth trying for gradients by the input whose phases are merged: those of whole boxes
of the forward pass that takes their place."""

from __future__ import annotations

import math

from tilewright.target.target import Target
from tilewright.topi.gpu.box_lines import COPYING, FILTER
from tilewright.topi.gpu.machine import MEMORY, sees_nothing
from tilewright.topi.gpu.whole_boxes import suits_whole, whole_price, whole_tiles
from tilewright.topi.nn.merged_phases import as_merged
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.problem import Problem

#: Channels of all phases at most: more fill an instruction, each phase by itself.
_MOST = 32


def _merged(problem: Problem) -> Convolution | None:
    if not isinstance(problem, Conv) or problem.precision != "tf32" or not problem.channels_last:
        return None
    made = as_merged(problem)
    return made if made is not None and made.out_channels <= _MOST else None


def suits_merged(problem: Problem) -> bool:
    """Whether it is a gradient by the input in TF32 with strides, of so few channels that those of
    all phases are few."""
    made = _merged(problem)
    return made is not None and not sees_nothing(made) and suits_whole(made)


def merged_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.merged_phases.schedule_merged_phases`."""
    made = _merged(problem)
    assert made is not None
    return whole_tiles(made, target)


def merged_price(problem: Problem, tile: BoxProductTile, target: Target) -> float:
    """What a tile is predicted to take, in microseconds, with both copies."""
    made = _merged(problem)
    assert made is not None
    moved = 8 * math.prod(problem.result.shape) / MEMORY
    return whole_price(made, tile, target) + FILTER + COPYING + moved
