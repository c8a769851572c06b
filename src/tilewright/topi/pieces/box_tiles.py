"""The tiles of products of boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from tilewright.target.instructions.wgmma import has_columns
from tilewright.topi.pieces.block_tiles import shared_out

#: Threads of a warpgroup, rows of its matrix, and those that a warp has of them.
LANES, ROWS, WARP_ROWS = 128, 64, 16


@cache
def columns_of(channels: int, kind: str = "float16") -> int:
    """Columns of an instruction that a number of channels, of a type, is multiplied by: the most
    that divide them.

    >>> columns_of(104), columns_of(104, "int8"), columns_of(512)
    (104, 8, 256)
    """
    return next(
        n for n in range(min(channels, 256), 0, -1) if channels % n == 0 and has_columns(n, kind)
    )


@dataclass(frozen=True)
class BoxProductTile:
    """A block computes a box of ``images`` by ``rows`` by ``columns`` results, powers of two, and
    by ``planes`` where images have three dimensions, of which each 64 are a warpgroup's, with
    ``channels`` of the result; or what one of ``splits`` parts of the steps adds to them, or
    several ``boxes`` of them one after the other. Where it is ``turned``, each 64 channels are a
    warpgroup's, and results any multiple of eight.

    A cluster is ``boxes_to`` blocks with the same box and other channels, or ``filters_to`` with
    the same channels and other boxes: what they share is copied to all at once. Where ``staged``
    is not 0, a warp of its own copies boxes, and each of the others stores results of ``staged``
    channels at once, or of ``staged`` pixels if it is turned; or TMA ``stores`` them. TMA also
    brings what is ``added`` to results, while they are multiplied; else threads read it after.
    Where a block brings what all taps see, it keeps the filter, or brings it again for each box, a
    row of taps and of channels at a time, of which it has memory for ``streamed``. Boxes of a block
    have the same channels where it has ``kept`` what an epilogue reads of these; with a single box
    it keeps the filter, all of which it asks for first."""

    images: int = 2
    rows: int = 8
    columns: int = 8
    channels: int = 128
    stages: int = 3
    splits: int = 1
    boxes: int = 1
    turned: int = 0
    boxes_to: int = 1
    filters_to: int = 1
    planes: int = 0
    staged: int = 0
    stores: int = 0
    added: int = 0
    streamed: int = 0
    kept: int = 0

    @staticmethod
    def of(
        box: tuple[int, ...], channels: int, stages: int, splits: int = 1, boxes: int = 1,
        turned: int = 0, boxes_to: int = 1, filters_to: int = 1, staged: int = 0, stores: int = 0,
        added: int = 0, streamed: int = 0, kept: int = 0,
    ) -> BoxProductTile:  # fmt: skip
        """The tile of a :attr:`box`."""
        planes = box[1] if len(box) > 3 else 0
        return BoxProductTile(
            box[0], box[-2], box[-1], channels, stages, splits, boxes, turned, boxes_to,
            filters_to, planes, staged, stores, added, streamed, kept,
        )  # fmt: skip

    @property
    def lanes(self) -> int:
        """Threads of a group."""
        return LANES

    @property
    def part(self) -> BoxProductTile:
        """What of a tile is in shared memory at once before it is stored."""
        if not self.staged:
            return self
        return replace(self, **{"images" if self.turned else "channels": self.staged})

    @property
    def box(self) -> tuple[int, ...]:
        planes = (self.planes,) if self.planes else ()
        return self.images, *planes, self.rows, self.columns

    @property
    def groups(self) -> int:
        """Warpgroups."""
        return (self.channels if self.turned else math.prod(self.box)) // ROWS

    @property
    def of_groups(self) -> tuple[int, ...]:
        """The part of a box that is a warpgroup's: its outermost dimensions are shared out, unless
        channels are."""
        return shared_out(self.box, 1 if self.turned else self.groups)

    @property
    def own_channels(self) -> int:
        """Channels that are a warpgroup's."""
        return ROWS if self.turned else self.channels


@dataclass(frozen=True)
class BoxGradientTile:
    """A block computes ``filters`` by ``channels`` of a tap, from one of ``splits`` parts of the
    pixels; each 64 filters are a warpgroup's. Of whole boxes it computes those of ``rows`` rows of
    taps, and each of these by 64 filters is a warpgroup's. Of a cluster, ``dy_to`` blocks share
    what they need of dy, or ``x_to`` of x. With a ``producer`` a warp of its own copies boxes. The
    ``splits`` blocks of a tile may be a ``cluster``, which adds what they have; or each that many,
    if it is not 1, which add theirs."""

    filters: int = 128
    channels: int = 128
    stages: int = 3
    splits: int = 1
    dy_to: int = 1
    x_to: int = 1
    rows: int = 0
    producer: int = 0
    cluster: int = 0

    @property
    def lanes(self) -> int:
        """Threads of a group."""
        return LANES

    @property
    def groups(self) -> int:
        """Warpgroups."""
        return max(1, self.rows) * (self.filters // ROWS)
