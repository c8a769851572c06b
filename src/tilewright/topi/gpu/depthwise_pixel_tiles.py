"""Depthwise convolution on a GPU, channels last, of tiles of the image in shared memory.

A block goes down the image tile by tile. What a tile sees of some channels, halo and padding
included, comes into shared memory as one box, by TMA, while the tile before it is computed: no
thread has a guard or computes an address, and neighbours share what both of them see. A thread
computes ``rows`` by ``columns`` pixels of ``vector`` channels, row by row; a row of the input that
it read and converted serves all outputs whose windows hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.columns import number
from tilewright.topi.declare import Declaration, declare_tiles
from tilewright.topi.gpu.machine import sees_nothing
from tilewright.topi.nn.depthwise_byte_dots import (
    PIXELS,
    DotDeclaration,
    declare_dots,
    phases,
    suits_dots,
    words,
)
from tilewright.topi.nn.depthwise_byte_dots import seen as of_words
from tilewright.topi.nn.depthwise_forward import Tile
from tilewright.topi.operators.conv import Conv
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.byte_dots import share_words, sum_dots, turn_words
from tilewright.topi.pieces.loop_order import ROLLING, place_loads
from tilewright.topi.pieces.shared_filter import share_filter
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.pieces.windows import load_whole, sum_windows
from tilewright.topi.stages import Stages, begin, image_axes


@dataclass(frozen=True)
class BoxTile:
    """A thread computes ``rows`` by ``columns`` pixels of ``vector`` channels; a block has
    ``threads_z`` threads down, ``threads_y`` across and ``threads_x`` along channels, and goes
    through ``turns`` tiles, one below the other, of which ``stages`` are in shared memory. With
    ``keeps`` (1 or 0) a thread has the filter of its channels in registers."""

    rows: int = 8
    columns: int = 4
    vector: int = 2
    threads_z: int = 1
    threads_y: int = 8
    threads_x: int = 16
    turns: int = 1
    stages: int = 1
    keeps: int = flag()

    @property
    def whole(self) -> Tile:
        """Rows, columns and channels that a block computes at once."""
        return (
            self.rows * self.threads_z,
            self.columns * self.threads_y,
            self.vector * self.threads_x,
        )

    def within(self, p: Conv) -> Tile:
        """:attr:`whole` of a problem that may be smaller than that."""
        own = (self.rows, self.columns, self.vector)
        threads = (self.threads_z, self.threads_y, self.threads_x)
        rows, columns, channels = (
            number(np.minimum(n, extent) * np.minimum(t, -(-extent // n)))
            for n, t, extent in zip(own, threads, (*p.result_image, p.result_channels), strict=True)
        )
        return rows, columns, channels


def declare_boxes(p: Conv, tile: BoxTile, batch: Any = None) -> Declaration:
    """The program of a problem, in whole tiles; ``batch`` as in :func:`declare`."""
    rows, columns, channels = tile.within(p)
    turns = min(tile.turns, -(-p.result_image[0] // rows))  # a block goes through all of its own
    declared = declare_dots if has_dots(p, tile) else declare_tiles
    return declared(p, (rows * turns, columns, channels), batch)


def has_dots(p: Conv, tile: BoxTile) -> Any:
    """Whether a thread's results are dot products of words: a bool, or of tiles a column."""
    begins = tile.columns % phases(p) == 0 if suits_dots(p) else False
    return begins & (tile.vector == PIXELS)


def multiplied(p: Conv, tile: BoxTile) -> tuple[Any, Any, Any]:
    """What a result takes for a row of the filter; the numbers of a filter's row that a thread has,
    and their bytes in shared memory: of a channel."""
    dots, size = has_dots(p, tile) * 1, dtype(p.dtype).bytes
    taps = np.where(tile.keeps, size, 4) * p.kernel_w
    if not suits_dots(p):
        return p.kernel_w, p.kernel_w, number(taps)
    each, stored = words(p), words(p) * phases(p)
    return (
        number(np.where(dots, each, p.kernel_w)),
        number(np.where(dots, stored, p.kernel_w)),
        number(np.where(dots, stored * PIXELS, taps)),
    )


def schedule_boxes(d: Declaration, tile: BoxTile = BoxTile()) -> Schedule:
    """The schedule of what :func:`declare_boxes` makes of a problem with the same ``tile``."""
    words = d.words if isinstance(d, DotDeclaration) else None
    st, p = begin(d, words), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    assert d.padded is not None
    kind = str(st.sum.dtype)
    data = words or s.cache_read(d.padded, "local", [st.sum], kind)

    n, c, h, w = image_axes(out, p.layout)
    c, lane = out.split(c, factor=tile.vector)
    cb, tx = out.split(c, factor=tile.threads_x)
    w, column = out.split(w, factor=tile.columns)
    wb, ty = out.split(w, factor=tile.threads_y)
    h, row = out.split(h, factor=tile.rows)
    h, tz = out.split(h, factor=tile.threads_z)
    hb, turn = out.split(h, factor=tile.turns)
    out.reorder(n, hb, wb, cb, tz, ty, tx, turn, row, column, lane)
    block = bind(out, out.fuse(n, hb, wb, cb), tz, ty, tx)
    out.unroll(row, column)
    even = p.result_channels % tile.vector == 0
    (out.vectorize if even else out.unroll)(lane)

    sums.compute_at(out, row)
    di = sum_dots(st) if words else sum_windows(st)

    loads = s[data]
    place_loads(loads, ROLLING, out, row, tx, sums, di)
    if words:
        turn_words(loads)
    else:
        load_whole(loads, True)

    box = s[d.padded]
    box.set_scope("shared")
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    box.tensorize(box.op.axis[0], tma_load((1, *seen(p, tile)), p.dtype))

    threads = tile.threads_z, tile.threads_y, tile.threads_x
    share = share_words if words else share_filter
    filter, kept = share(st, threads, kind, bool(tile.keeps))
    filter.compute_at(out, turn if tile.turns == 1 else block)
    if kept is not None:
        kept.compute_at(out, turn)
    _load_early(st, tx, even, kept is not None)
    return s


def _load_early(st: Stages, thread: IterVar, even: bool, keeps: bool) -> None:
    """What the epilogue reads of a thread's channels, which scales the filter that it ``keeps``:
    nothing moves a load over the wait for a tile afterwards, and one behind it would be waited for
    as well."""
    s, d = st.schedule, st.declaration
    own = s.stages[s.stages.index(st.sums) :]
    if keeps and d.scaled is not None:
        own.append(s[d.scaled])
    for step in d.problem.epilogue:
        for name, shape in step.tensors:
            tensor = d.inputs[name]
            readers = [stage.op for stage in own if tensor in stage.op.inputs]
            if shape == "channel" and readers:
                loads = s[s.cache_read(tensor, "local", readers)]
                loads.compute_at(st.out, thread)
                (loads.vectorize if even else loads.unroll)(loads.op.axis[0])


def seen(p: Conv, tile: BoxTile) -> Tile:
    """Rows, columns and channels of the input that a block's tile sees."""
    steps, within = p.stride if p.pass_ == "forward" else (1, 1), tile.within(p)
    sees: list[Any] = [
        (size - 1) * step + (k - 1) * e + 1
        for size, step, k, e in zip(within, steps, p.kernel, p.dilation, strict=False)
    ]
    if suits_dots(p):
        sees[1] = number(np.where(has_dots(p, tile), of_words(p, within[1]), sees[1]))
    return sees[0], sees[1], within[2]


def suits_boxes(p: Conv) -> bool:
    """Whether :func:`schedule_boxes` is for a problem: pixels begin at multiples of 16 bytes."""
    return (
        p.rank == 2
        and p.multiplier == 1
        and p.channels * dtype(p.dtype).bytes % 16 == 0
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and not sees_nothing(p)
    )
