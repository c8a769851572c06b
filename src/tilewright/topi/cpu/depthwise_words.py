"""Depthwise convolution of bytes on a CPU, channels last: dot products of words of four pixels, and
which problems they are for.

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
from tilewright.target.target import Target
from tilewright.topi.nn.depthwise_byte_dots import DotDeclaration, phases, suits_dots, words
from tilewright.topi.operators.conv import Conv
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


#: Rows and columns of a tile: its sums leave registers for words and the filter.
_SHAPES = ((6, 4), (4, 4), (8, 2), (2, 8), (7, 2), (3, 4), (4, 2), (2, 4), (1, 8), (2, 2), (1, 2))
#: Vectors of channels of a task, at most: where words are made for each tile, and once for all.
_VECTORS = (9, 4)
#: The least number of tasks of a thread, where there are several.
_TASKS = 4
#: Instructions that make a word, and that send a vector of sums through an epilogue; what a tile
#: takes beside.
_WORD, _RESULT, _BESIDE = 6.0, 9.0, 40.0
#: Rows of results of a task, about: words of all of them, or a copy of what they see, are in a
#: cache.
_BAND = 16


def suits_words(p: Conv) -> bool:
    """Whether windows begin at words, and each channel has one filter."""
    return p.rank == 2 and p.multiplier == 1 and suits_dots(p)


def word_tiles(p: Conv, target: Target) -> list[WordTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_words.schedule_words`, the best guess first."""
    from tilewright.runtime.llvm_host import thread_count

    threads = thread_count(target)
    least = 1 if threads == 1 else _TASKS * threads
    height, width = p.out_image
    blocks, kept = -(-p.channels // LANES), int(p.kernel_h * p.kernel_w > WRITTEN_OUT)
    even = -(-width // phases(p)) * phases(p)
    fit = [t for t in _SHAPES if t[0] <= height and t[1] <= even] or [(1, 1)]
    vectors = [v for v in range(_VECTORS[kept], 0, -1) if blocks % v == 0]
    found = []
    for rows, columns in sorted(fit, key=lambda t: _cost(p, t[0], t[1], kept))[:4]:
        for each in vectors[:2]:
            tasks, tiles = p.batch * -(-blocks // each), -(-height // rows)
            bands = max(-(-least // tasks), round(height / _BAND), 1)
            band = 0 if bands == 1 else -(-tiles // bands)
            found.append(WordTile(rows, columns, band, each, kept))
    return found


def _cost(p: Conv, rows: int, columns: int, kept: int) -> float:
    """Instructions that all tiles of this size take, of a vector of channels."""
    height, width = p.out_image
    dots = rows * columns * p.kernel_h * words(p)
    seen = -(-columns // phases(p)) * words(p)
    made = ((rows - 1) * p.stride[0] + p.kernel_h) * seen * _WORD
    read = rows * seen * p.kernel_h
    step = dots + (read if kept else made) + _RESULT * rows * columns + _BESIDE
    return -(-height // rows) * -(-width // columns) * step
