"""Gradients by the input with strides of few channels on Hopper: whole boxes of a forward pass
whose channels are those of all phases, and a kernel that puts these between one another."""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.schedule import Schedule
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.tiling import extent_of, spread
from tilewright.topi.sketches.whole_boxes import schedule_whole_boxes

#: Threads of a block that moves results.
_THREADS = 256


def schedule_merged_phases(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a gradient by the input that is declared with merged phases."""
    assert d.by_pixels is not None
    s = schedule_whole_boxes(replace(d, output=d.by_pixels, by_pixels=None, after=d.output), tile)
    out = s[d.output]
    n, y, x, c = out.op.axis
    # Neighbours of a row are those of its phases, whose channels lie side by side.
    step, own = -(-extent_of(x) // extent_of(d.by_pixels.op.axis[2])), extent_of(c)
    x, phase = out.split(x, factor=step)
    c, lane = out.split(out.fuse(phase, c), factor=math.gcd(step * own, 4))
    spread(out, (n, y, x, c), _THREADS)
    out.vectorize(lane)
    return s
