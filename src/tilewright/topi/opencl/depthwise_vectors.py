"""Depthwise convolution in OpenCL, channels last: vectors of channels, nothing shared.

Many devices only emulate shared memory: CPUs, and the GPUs of phones. Each work-item computes
``rows`` by ``columns`` pixels of one vector of neighbouring channels, in registers, with the
device's vector arithmetic; neighbouring work-items take neighbouring vectors. The filter is brought
into the order in which it is read by a small kernel of its own beforehand, or read as it lies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.tiling import spread
from tilewright.topi.stages import begin, image_axes, tap_axes


@dataclass(frozen=True)
class VectorTile:
    """A work-item computes ``rows`` by ``columns`` pixels of ``lanes`` channels, a work-group is of
    ``items``. The taps of ``taps`` filter rows are written out. ``packed`` (1 or 0) says whether
    the filter is put into order beforehand."""

    rows: int = 1
    columns: int = 4
    lanes: int = 4
    items: int = 32
    taps: int = 3
    packed: int = flag()


def schedule_vectors(d: Declaration, tile: VectorTile = VectorTile()) -> Schedule:
    """The schedule for a forward pass or a gradient by the input in NHWC or NWC."""
    st, p = begin(d), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    phased = len(sums.op.axis) != p.rank + 2
    sh, sw = p.stride if phased else (1, 1)
    data = s.cache_read(d.source, "local", [st.sum])
    if st.padded is not None:
        st.padded.compute_inline()

    n, c, h, w = image_axes(out, p.layout)
    c, lane = out.split(c, factor=tile.lanes)
    w, column = out.split(w, factor=tile.columns * sw)
    h, row = out.split(h, factor=tile.rows * sh)
    out.reorder(n, h, w, c, row, column, lane)
    item = spread(out, [n, h, w, c], tile.items)
    # Of several filters a channel, lanes read the same input, which no vector load brings.
    whole = p.result_channels % tile.lanes == 0 and p.multiplier == 1

    sums.compute_at(out, item)
    batch, *space, channel = sums.op.axis
    phases, pixels = space[p.rank :], space[: p.rank]
    before, di, dj = tap_axes(sums, p.rank)
    do, dt = sums.split(di, factor=min(tile.taps, p.kernel[0]))
    sums.reorder(batch, *before, do, dt, dj, *phases, *pixels, channel)
    sums.unroll(dt, dj, *phases, *pixels)
    loads = s[data]
    loads.compute_at(sums, do)
    loads.unroll(*loads.op.axis[:-1])
    out.unroll(row, column)
    for stage, axis in ((out, lane), (sums, channel), (loads, loads.op.axis[-1])):
        if whole:
            stage.vectorize(axis)
        else:
            stage.unroll(axis)

    if st.packed is not None:
        if tile.packed:
            spread(st.packed, list(st.packed.op.axis), tile.items)
        else:
            st.packed.compute_inline()
    return s
