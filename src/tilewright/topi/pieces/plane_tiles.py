"""Tiles of planes in shared memory, channels first, and how they are cut out of the image.

A tile is of some channels of an image, of some rows and columns of results, with the rows and
columns of the image that these see. Its rows begin where TMA reads best, and are as long as threads
that read them together like it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.target.devices import BANKS, WARP, WORD
from tilewright.te import Tensor
from tilewright.topi.columns import Array, number
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.nn.convolved import Convolved

#: Bytes that rows of boxes are multiples of, and that a thread reads at once at most.
CHUNK = 16


@dataclass(frozen=True)
class PlaneBoxTile:
    """A thread computes ``rows`` by ``columns`` pixels; a block has ``threads_y`` by ``threads_x``
    threads in each of ``channels`` channels, and goes through such tiles of ``turns`` images, one
    after another, of which ``stages`` are in shared memory."""

    rows: int = 7
    columns: int = 4
    threads_y: int = 4
    threads_x: int = 7
    channels: int = 4
    turns: int = 4
    stages: int = 2

    @property
    def own(self) -> tuple[int, int, int]:
        """What a thread has: of channels one, rows, columns."""
        return 0, self.rows, self.columns

    @property
    def threads(self) -> tuple[int, int, int]:
        """Of a block, along channels, down and across."""
        return self.channels, self.threads_y, self.threads_x

    @property
    def size(self) -> tuple[int, int, int]:
        """Channels, rows and columns of results of a tile."""
        return self.channels, self.rows * self.threads_y, self.columns * self.threads_x


@dataclass(frozen=True)
class PlaneCut(Convolved):
    """How a problem, in NCHW, is cut.

    Parameters
    ----------
    size : channels, rows and columns of results of a tile; its channels divide the problem's.
    row_stride : elements of a row of the image in a tile, at least what results see.
    margin : columns by which a tile begins before the first one that its results see.
    """

    size: tuple[int, int, int]
    row_stride: int
    margin: int

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tiles along channels, down and across an image."""
        extents = (self.problem.result_channels, *self.result)
        along, down, across = (-(-n // t) for n, t in zip(extents, self.size, strict=True))
        return along, down, across

    @property
    def box(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the image in a tile."""
        return self.size[0], self.sees(0, self.size[1]), self.row_stride


def plane_cut(p: Any, tile: PlaneBoxTile) -> PlaneCut:
    """How ``tile`` cuts a problem: as many chunks of 16 bytes are from one row to the next as let
    the fewest lanes conflict in a bank."""
    vector = CHUNK // dtype(p.dtype).bytes
    bare = PlaneCut(p, tile.size, 0, 0)
    margin = -bare.before[1] % vector
    least = -(-(margin + bare.sees(1, tile.size[2])) // vector)
    options = [least + more for more in range(4)]
    passes = [_passes(p, tile, bare, n * CHUNK) for n in options]
    row_stride = least + np.argmin(passes, axis=0)
    return PlaneCut(p, tile.size, number(row_stride * vector), margin)


def in_tiles(s: Schedule, d: Declaration, cut: PlaneCut) -> tuple[Tensor, Tensor]:
    """The sums over tiles, and the image in tiles with all that they see."""
    sums, (channels, high, wide) = s[d.sum], cut.size
    (sh, sw), (dh, dw) = cut.stride, cut.dilation
    n, c, h, w = sums.op.axis
    sums.split(c, factor=channels)
    sums.split(sums.pad_to(h, high), factor=high)
    sums.split(sums.pad_to(w, wide), factor=wide)
    total = s.cache_write(d.sum, "local")
    n, e, c, down, h, across, w = s[total].op.axis
    di, dj = s[total].op.reduce_axis
    whole = Range.from_extent(-cut.margin, cut.row_stride)
    rows, columns = h.var * sh + di.var * dh, w.var * sw + dj.var * dw
    image = s.reindex(d.source, total, [n, e, down, across, c, rows, (columns, whole)], "shared")
    s[total].guard_by_zeros(image, finite=True)  # what is beyond an image, nobody reads
    return total, image


def read_at_once(p: Any, tile: PlaneBoxTile, cut: PlaneCut) -> Any:
    """Elements of a thread's reads: as many as 16 bytes have, where columns of all threads begin
    alike."""
    return number(np.gcd(CHUNK // dtype(p.dtype).bytes, tile.columns * cut.stride[1]))


def _passes(p: Any, tile: PlaneBoxTile, cut: PlaneCut, row: Any) -> Array:
    """Passes over the banks that a warp's reads take, whose rows are ``row`` bytes apart."""
    size, (sh, sw) = dtype(p.dtype).bytes, cut.stride
    high, step, apart, row, across, down = (
        np.asarray(n)[..., None]
        for n in (
            cut.sees(0, tile.size[1]), tile.rows * sh, tile.columns * sw * size, row,
            tile.threads_x, tile.threads_y,
        )
    )  # fmt: skip
    part = np.arange(WARP) // across
    line = part // down * high + part % down * step
    address = line * row + np.arange(WARP) % across * apart
    # Threads whose bytes the banks pass together, of which the first word conflicts as others do.
    width, found = read_at_once(p, tile, cut) * size, np.zeros(address.shape[:-1], "int64")
    for together in (8, 16, 32):
        some = np.clip(BANKS * WORD // width, 8, 32) == together
        lanes = address[some].reshape(-1, WARP // together, together)
        found[some] = bank_conflicts(lanes, 4).sum(axis=-1)
    return found
