"""What blocks take that copy tiles of images to shared memory, one after another: one formula for
all that do, of what they say that their tiles do. Which tiles are taken on a GPU, records and the
trees of the choice decide; what is here keeps those that are worth their look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.topi.columns import best, listed, pick
from tilewright.topi.gpu.machine import CACHE, ISSUE, MACHINE, MEMORY, busy, micros, occupancy

#: Multiplications written out that the instruction cache still holds; how much longer others take.
_CACHED, _MISSED = 1900, 0.2
#: Microseconds until a tile is there that is copied while nothing else is computed, or something.
WAITS = 1.2, 0.7
#: Bytes of a row of a box that take as long as fewer do, and that each row takes more.
_SHORT, _ROW = 80, 12
#: Tiles of a block, one after another, besides as many as let the blocks that SMs hold have all, or
#: twice as many blocks.
_TURNS = (1, 2, 4, 8)
#: How many tiles are worth trying.
_MOST = 240


@dataclass(frozen=True)
class Work:
    """What blocks of tiles, and their warps, do: numbers, or columns.

    Attributes
    ----------
    warps, registers : of a block, and of a thread.
    staged, kept : bytes of shared memory of a tile that is copied, and of a block beside these.
    line, beside : tiles of which a block may have several, and how many times there are those.
    products, loads, issued : of a warp for a tile: products of matrices, of 16 by 8 by 16, loads of
        16 bytes by each thread, as often as these take turns at banks, and instructions beside.
    once : instructions of a warp for all of its block's tiles.
    brought : bytes of a tile as TMA brings them (:func:`brought`).
    moved : bytes of all images, as memory moves them.
    fits : whether copies can be made.
    latency : by how much a warp's instructions take longer that no other warp hides.
    spare : by dimension, results for which there is room in tiles by those there are, and what
        tiles bring of an image by what they have of results.
    """

    warps: Any
    registers: Any
    staged: Any
    kept: Any
    line: Any
    beside: Any
    products: Any
    loads: Any
    issued: Any
    once: Any
    brought: Any
    moved: Any
    fits: Any = True
    latency: Any = 6.0
    spare: tuple[Any, ...] = ()

    def pick(self, which: Any) -> Work:
        """Those of some tiles, as NumPy indexes them."""
        *counts, spare = vars(self).values()
        every = [x[which] for x in np.broadcast_arrays(*counts, *spare)]
        return replace(Work(*every[: len(counts)]), spare=tuple(every[len(counts) :]))

    def shares(self, tile: Any) -> tuple[Any, Any]:
        """Blocks that share a line of such tiles, which now have all parameters, and how many of
        them each goes through."""
        if hasattr(tile, "chunks"):
            return tile.chunks, -(-self.line // tile.chunks)
        turns = np.minimum(tile.turns, self.line)
        return -(-self.line // turns), turns

    def resident(self, stages: Any) -> Any:
        """Blocks that an SM holds, with memory for as many tiles each."""
        shared = stages * self.staged + self.kept
        return np.where(self.fits, occupancy(MACHINE, self.warps, self.registers, shared), 0)

    def micros(self, turns: Any, stages: Any, most: Any = np.inf) -> Any:
        """The microseconds that all tiles are predicted to take where a block has ``turns`` of
        them and an SM at ``most`` as many blocks, infinite where none fits."""
        fit = np.minimum(self.resident(stages), most)
        resident, blocks = np.maximum(fit, 1), -(-self.line // turns) * self.beside
        issue = turns * busy(self.products, self.loads, written(self.issued)) + self.once * ISSUE
        issue = blocks * self.warps * issue * (1 + self.latency / (resident * self.warps))
        time = micros(
            issue / MACHINE.clock / MACHINE.sms, blocks * turns * self.brought / CACHE,
            self.moved / MEMORY, blocks / (resident * MACHINE.sms),
            np.where(stages == 1, *WAITS), resident,
        )  # fmt: skip
        return np.where(fit > 0, time, np.inf)


def spare_of(
    extents: Sequence[int], sizes: Sequence[Any], seen: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """The room to spare in tiles of some ``sizes``, and by how much what they see of an image, in
    rows and columns, is more than they have of results."""
    spare = [-(-n // size) * size / n for n, size in zip(extents, sizes, strict=True)]
    if seen:
        spare.append(math.prod(seen) / (sizes[0] * sizes[1]))
    return tuple(spare)


def written(issued: Any) -> Any:
    """Instructions that are written out, as those count that wait for the instruction cache."""
    return issued * (1 + _MISSED * np.maximum(0.0, issued / _CACHED - 1))


def brought(rows: Any, row: Any) -> Any:
    """Bytes of boxes of ``rows`` of as many bytes each, of which short ones take longer."""
    return rows * np.maximum(row + _ROW, _SHORT)


def in_turns(tiles: Any, work: Work, longest: Any = np.inf) -> Sequence[Any]:
    """Those of ``tiles``, with columns, that are predicted to take least, the best first, in blocks
    of one of them and of several, up to ``longest``, of which shared memory has two."""
    if not len(tiles.rows):
        return ()
    held = np.maximum(work.resident(2), 1) * MACHINE.sms
    even = [-(-work.line * work.beside // (n * held)) for n in (1, 2)]
    turns = np.sort(np.stack(np.broadcast_arrays(*_TURNS, *even, tiles.rows)[:-1], axis=1), axis=1)
    some = turns <= np.reshape(np.minimum(work.line, longest), (-1, 1))
    some[:, 1:] &= turns[:, 1:] != turns[:, :-1]
    which, turn = np.nonzero(some)
    turns = turns[which, turn]
    stages = np.minimum(turns, 2)
    found = pick(tiles, which, turns=turns, stages=stages)
    return worth_trying(found, work.pick(which).micros(turns, stages))


def worth_trying(tiles: Any, cost: Any) -> Sequence[Any]:
    """Those of ``tiles``, with columns, that are predicted to take least, the best first."""
    return listed(pick(tiles, best(cost, _MOST)))
