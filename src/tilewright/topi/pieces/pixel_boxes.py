"""Tiles of pixels in shared memory, channels last, and what they see of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.columns import number
from tilewright.topi.declare import Declaration
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.depthwise_byte_dots import PIXELS, phases, suits_dots, words
from tilewright.topi.nn.depthwise_byte_dots import seen as of_words
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.bands import indices

#: Rows, columns and channels.
Tile: TypeAlias = tuple[int, int, int]


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
    def own(self) -> Tile:
        """Rows, columns and channels of a thread."""
        return self.rows, self.columns, self.vector

    @property
    def threads(self) -> Tile:
        """Of a block, down, across and along channels."""
        return self.threads_z, self.threads_y, self.threads_x

    @property
    def whole(self) -> Tile:
        """Rows, columns and channels that a block computes at once."""
        return (
            self.rows * self.threads_z,
            self.columns * self.threads_y,
            self.vector * self.threads_x,
        )

    def within(self, p: Any) -> Tile:
        """:attr:`whole` of a problem that may be smaller than that."""
        rows, columns, channels = (
            number(np.minimum(n, extent) * np.minimum(t, -(-extent // n)))
            for n, t, extent in zip(
                self.own, self.threads, (*p.result_image, p.result_channels), strict=True
            )
        )
        return rows, columns, channels


def has_dots(p: Any, tile: BoxTile) -> Any:
    """Whether a thread's results are dot products of words: a bool, or of tiles a column."""
    begins = tile.columns % phases(p) == 0 if suits_dots(p) else False
    return begins & (tile.vector == PIXELS)


def multiplied(p: Any, tile: BoxTile) -> tuple[Any, Any, Any]:
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


def form(p: Any, tile: BoxTile) -> str:
    """Which declaration of a problem a tile is of."""
    return "byte dots" if has_dots(p, tile) else "scaled"


def seen(p: Any, tile: BoxTile) -> Tile:
    """Rows, columns and channels of the input that a block's tile sees."""
    steps, within = p.stride if p.pass_ == "forward" else (1, 1), tile.within(p)
    sees: list[Any] = [
        (size - 1) * step + (k - 1) * e + 1
        for size, step, k, e in zip(within, steps, p.kernel, p.dilation, strict=False)
    ]
    if suits_dots(p):
        sees[1] = number(np.where(has_dots(p, tile), of_words(p, within[1]), sees[1]))
    return sees[0], sees[1], within[2]


def stage_image(s: Schedule, d: Declaration, tile: BoxTile, reader: Tensor) -> Tensor:
    """The padded image in shared memory, as far as whole tiles see it, which ``reader`` reads."""
    p, (rows, columns, channels) = d.problem, tile.within(d.problem)
    high, wide = Convolved(p).result
    rows *= min(tile.turns, -(-high // rows))  # a block goes through all of its own
    if d.padded is not None:
        s[d.padded].compute_inline()
    cut = Convolved(p)
    across = whole(wide, columns)
    extents = (
        cut.sees(0, whole(high, rows)),
        of_words(p, across) if has_dots(p, tile) else cut.sees(1, across),
        whole(p.channels, channels),
    )
    n, *at = indices(s, reader, d.source)
    axes = [(i, Range.from_extent(0, extent)) for i, extent in zip(at, extents, strict=True)]
    return s.reindex(d.source, reader, [n, *axes], "shared")
