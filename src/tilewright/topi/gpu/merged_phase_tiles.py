"""The tiles worth trying for gradients by the input whose phases are merged: those of whole boxes
of the forward pass that takes their place."""

from __future__ import annotations

import math

from tilewright.topi.gpu.box_lines import COPYING, FILTER
from tilewright.topi.gpu.box_products import is_sooner
from tilewright.topi.gpu.machine import MEMORY, sees_nothing
from tilewright.topi.gpu.whole_boxes import whole_times
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


def merged_times(problem: Problem) -> dict[BoxProductTile, float]:
    """For :func:`~tilewright.topi.sketches.merged_phases.schedule_merged_phases`, of a gradient by
    the input in TF32 with strides, of so few channels that those of all phases are few: tiles, and
    what they are predicted to take, in microseconds, with both copies."""
    made = _merged(problem)
    if made is None or sees_nothing(made):
        return {}
    found = whole_times(made)
    moved = 8 * math.prod(problem.result.shape) / MEMORY
    copied = FILTER + COPYING + moved
    return {t: time + copied for t, time in found.items()} if is_sooner(found, made) else {}
