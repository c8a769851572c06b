"""Depthwise convolution of bytes on a CPU, channels last: dot products of words of four pixels.

VNNI multiplies four bytes of each of 16 channels at once. A task takes some vectors of channels of
a band of rows, and copies what they see, padding included; words of neighbouring pixels are made of
it (:mod:`~tilewright.topi.nn.depthwise_byte_dots`) for each tile, or where filters are large, once
for all tiles that read them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.target.instructions import rows_of_bytes, vnni_lanes
from tilewright.topi.nn.depthwise_byte_dots import DotDeclaration
from tilewright.topi.parameters import flag
from tilewright.topi.stages import begin, image_axes

#: Taps up to which all products of a tile are written out.
WRITTEN_OUT = 9
#: Channels of a vector.
LANES = 16
#: Bytes that are stored at once, at most.
_BYTES = 64


@dataclass(frozen=True)
class WordTile:
    """``rows`` by ``columns`` pixels of 16 channels are summed in registers. A task takes
    ``vectors`` times as many channels and ``band`` tiles of rows, 0 all of them, and makes words
    once for all tiles where they are ``kept``."""

    rows: int = 4
    columns: int = 4
    band: int = 0
    vectors: int = 1
    kept: int = flag()


def schedule_words(d: DotDeclaration, tile: WordTile = WordTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.depthwise_byte_dots.declare_unsigned`."""
    st, p = begin(d, d.words, d.above), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    n, c, h, w = image_axes(out, p.layout)
    h, row = out.split(h, factor=tile.rows)
    band, h = out.split(h, factor=tile.band) if tile.band else out.split(h, nparts=1)
    w, column = out.split(w, factor=tile.columns)
    c, vector = out.split(c, factor=tile.vectors * LANES)
    vector, lane = out.split(vector, factor=LANES)
    order = (vector, h, w) if tile.kept else (h, w, vector)
    out.reorder(n, c, band, *order, row, column, lane)
    task = out.fuse(n, c, band)
    out.parallel(task)
    out.unroll(row, column)
    out.vectorize(lane)

    sums.compute_at(out, order[-1])
    *space, channel = sums.op.axis
    sums.align_bounds(channel, LANES)
    di, g, k = sums.op.reduce_axis
    sums.reorder(di, g, *space, channel, k)
    if math.prod(p.kernel) <= WRITTEN_OUT:
        sums.unroll(di, g)
    sums.unroll(*space)
    sums.tensorize(channel, vnni_lanes)

    words = s[d.words]
    words.compute_at(out, vector)
    *outer, channel, _ = words.op.axis
    if not tile.kept:
        words.set_scope("local")
        words.unroll(*outer)
    words.tensorize(channel, rows_of_bytes)

    if st.padded is not None:
        st.padded.compute_at(out, task)
        channel, wide = st.padded.op.axis[-1], LANES
        while wide < _BYTES and tile.vectors * LANES % (2 * wide) == 0:
            wide *= 2
        st.padded.vectorize(st.padded.split(channel, factor=wide)[1])
    if d.above is not None:
        s[d.above].parallel(s[d.above].op.axis[0])
    packed = st.packed
    assert packed is not None
    packed.parallel(packed.fuse(*packed.op.axis[:2]))
    return s
